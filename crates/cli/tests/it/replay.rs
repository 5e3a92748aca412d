//! `lowtide replay` as a person meets it.

use std::io::Read as _;

use insta::assert_snapshot;
use lowtide_sim::HostHistory;
use lowtide_testkit::Sandbox;
use serde_json::Value;

use crate::kit::sandbox;

const STACKS: &[u8] = include_bytes!("../../../sim/tests/traces/gpt_stacks.pickle.gz");
const CAPPED: &[u8] = include_bytes!("../../../sim/tests/traces/gpt__default__cap977.pickle.gz");
const EXPANDABLE: &[u8] = include_bytes!("../../../sim/tests/traces/gpt__expandable.pickle.gz");

fn place() -> Sandbox {
    let place = sandbox();
    place.write("stacks.pickle.gz", STACKS);
    place.write("capped.pickle.gz", CAPPED);
    place.write("expandable.pickle.gz", EXPANDABLE);
    place
}

fn json(place: &Sandbox, words: &str) -> Value {
    serde_json::from_str(&place.says(&format!("replay {words} --json"))).unwrap()
}

#[test]
fn a_recording_with_stacks() {
    assert_snapshot!(place().says("replay stacks.pickle.gz"), @r"
    stacks.pickle.gz, GPU 0: 2435 events, replayed under PyTorch's own settings

    peak      reserved 432.00 MiB, allocated 373.20 MiB, active 373.20 MiB
    unused    58.80 MiB of 432.00 MiB when most was reserved (event 1528): 52.80 MiB free in segments
              that were partly in use, 6.00 MiB in whole cached segments
    largest   96.00 MiB in 4 tensors, made in nn/functional.py, line 3504, in cross_entropy
              96.00 MiB in 2 tensors, made where no line of Python is known
              50.50 MiB in 14 tensors, made in lab/models.py, line 15, in forward
              48.00 MiB in 24 tensors, made in lab/models.py, line 18, in forward
              20.30 MiB in 52 tensors, made in lab/stacks.py, line 6, in <module>
              20.30 MiB in 52 tensors, made in optim/adam.py, line 178, in _init_group
              20.30 MiB in 52 tensors, made in optim/adam.py, line 182, in _init_group
              8.50 MiB in 8 tensors, made in lab/models.py, line 17, in forward
              5.00 MiB in 2 tensors, made in lab/models.py, line 33, in forward
              4.13 MiB in 16 tensors, made in lab/models.py, line 16, in forward
    what if   PyTorch's own                                        432.00 MiB
              expandable_segments:True                             424.00 MiB
              max_split_size_mb:32                                 484.00 MiB
              max_split_size_mb:64                                 464.00 MiB
              max_split_size_mb:128                                432.00 MiB
              max_split_size_mb:256                                432.00 MiB
              max_split_size_mb:512                                432.00 MiB
              roundup_power2_divisions:4                           432.00 MiB
              roundup_power2_divisions:8                           432.00 MiB
              expandable_segments:True,roundup_power2_divisions:8  424.00 MiB
    best      PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    ");
}

#[test]
fn a_recording_that_ran_out_of_memory() {
    assert_snapshot!(place().says("replay capped.pickle.gz"), @r"
    capped.pickle.gz, GPU 0: 2958 events, replayed under PyTorch's own settings, limit 894.00 MiB (what the recording reserved when it ran out of memory; --limit sets another)

    peak      reserved 894.00 MiB, allocated 788.00 MiB, active 788.00 MiB
    unused    518.91 MiB of 894.00 MiB when most was reserved (event 1620): 122.91 MiB free in segments
              that were partly in use, 396.00 MiB in whole cached segments
    largest   256.00 MiB in 2 tensors of 128.00 MiB
              168.00 MiB in 14 tensors of 12.00 MiB
              84.00 MiB in 14 tensors of 6.00 MiB
              64.00 MiB
              57.00 MiB in 19 tensors of 3.00 MiB
              54.00 MiB in 6 tensors of 9.00 MiB
              32.00 MiB
              27.00 MiB in 12 tensors of 2.25 MiB
              13.50 MiB in 12 tensors of 1.13 MiB
              10.13 MiB in 6 tensors of 1.69 MiB
    OOM       a request was refused: it asked for 128.00 MiB (event 2199, 4.8 s after the first event)
    what if   PyTorch's own                                        894.00 MiB    1 OOM
              expandable_segments:True                             902.00 MiB
              max_split_size_mb:32                                 886.00 MiB    1 OOM
              max_split_size_mb:64                                 890.00 MiB    1 OOM
              max_split_size_mb:128                                894.00 MiB    1 OOM
              max_split_size_mb:256                                894.00 MiB    1 OOM
              max_split_size_mb:512                                894.00 MiB    1 OOM
              roundup_power2_divisions:4                           894.00 MiB    1 OOM
              roundup_power2_divisions:8                           894.00 MiB    1 OOM
              garbage_collection_threshold:0.6                     818.00 MiB    1 OOM
              garbage_collection_threshold:0.8                     830.00 MiB    1 OOM
              expandable_segments:True,roundup_power2_divisions:8  904.00 MiB
    best      PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    ");
}

#[test]
fn figures_for_programs() {
    let place = place();
    let found = json(&place, "capped.pickle.gz --limit 977MiB");
    assert_eq!(found["events"], 2958);
    assert_eq!(found["differing_events"], 0);
    assert_eq!(found["recorded"]["peak_reserved"], 937_426_944);
    assert_eq!(found["simulated"]["peak_reserved"], 937_426_944);
    assert_eq!(
        (&found["simulated"]["num_ooms"], &found["simulated"]["first_oom"]["size"]),
        (&1.into(), &(128 << 20).into())
    );
    assert_eq!(found["what_if"].as_array().unwrap().len(), 12);
    // Another setting, and a card on which it does not fit.
    let found = json(&place, "expandable.pickle.gz --conf expandable_segments:False --limit 700MiB");
    assert!(found["simulated"]["num_ooms"].as_u64().unwrap() > 0);
    assert!(found["simulated"]["peak_reserved"].as_u64().unwrap() <= 700 << 20);
    assert!(found["recorded"]["peak_reserved"].as_u64().unwrap() > 700 << 20);
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let place = place();
    place.write("text.pickle", b"nothing of the kind");
    place.write("calls.pickle", b"cos\nsystem\n(S'echo fooled > fooled'\ntR.");
    place.write("list.pickle", b"\x80\x02]q\x00.");
    place.write("empty.pickle", b"\x80\x02}q\x00(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](]eu.");
    let refused = |words: &str| place.refuses(&format!("replay {words}")).trim_end().to_owned();
    let all = [
        refused("nowhere.pickle"),
        refused("text.pickle"),
        refused("calls.pickle"),
        refused("list.pickle"),
        refused("empty.pickle"),
        refused("stacks.pickle.gz --device 3"),
        refused("stacks.pickle.gz --conf max_split_size_mb:1"),
        refused("stacks.pickle.gz --torch 1.13"),
    ];
    assert_snapshot!(all.join("\n---\n"), @r#"
    error: nowhere.pickle: No such file or directory (os error 2)
    ---
    error: text.pickle: not a memory snapshot of PyTorch: byte 0: 0x6e is no opcode of a pickle
    hint: record one: torch.cuda.memory._record_memory_history(), then, after the step, torch.cuda.memory._dump_snapshot("snapshot.pickle")
    ---
    error: calls.pickle: not a memory snapshot of PyTorch: byte 0: GLOBAL names `os.system`, which is not on the list of allowed names
    hint: record one: torch.cuda.memory._record_memory_history(), then, after the step, torch.cuda.memory._dump_snapshot("snapshot.pickle")
    ---
    error: list.pickle: not a memory snapshot of PyTorch: it has no `segments`
    hint: record one: torch.cuda.memory._record_memory_history(), then, after the step, torch.cuda.memory._dump_snapshot("snapshot.pickle")
    ---
    error: the snapshot has no history
    hint: record one: torch.cuda.memory._record_memory_history(), then, after the step, torch.cuda.memory._dump_snapshot("snapshot.pickle")
    ---
    error: no GPU 3 in the snapshot: it has 0
    ---
    error: allocator setting `max_split_size_mb`: PyTorch 2.11 takes no less than 20 MiB
    ---
    error: `1.13` is no version of PyTorch that is known here: 2.0 to 2.15
    "#);
    assert!(!place.path("fooled").exists());
}

#[test]
fn the_timeline_as_a_drawing() {
    let place = place();
    place.says("replay capped.pickle.gz --svg timeline.svg");
    let svg = place.text("timeline.svg");
    for words in
        ["capped.pickle.gz, GPU 0", "limit 894.00 MiB", "out of memory at event 2199", "live blocks 10 to 100 MiB"]
    {
        assert!(svg.contains(words), "{words}");
    }
    assert_eq!(svg.matches("out of memory at").count(), 1);
    place.says("replay expandable.pickle.gz --svg timeline.svg");
    let svg = place.text("timeline.svg");
    assert!(!svg.contains("out of memory") && !svg.contains("limit"), "it was replaced, by one without errors");
}

#[test]
fn what_is_not_known_is_said() {
    let place = place();
    let told = place.says("replay expandable.pickle.gz --conf per_process_memory_fraction:0.5");
    assert!(told.contains("--limit does"), "{told}");
    let told = place.says("replay expandable.pickle.gz --conf per_process_memory_fraction:0.5 --limit 2GiB");
    assert!(!told.contains("per_process_memory_fraction limits"), "{told}");
    // A segment and an entry of a CUDA graph's pool: {"segments": [...], "device_traces": [[...]]}.
    let graph = b"\x80\x02}(U\x08segments]}(U\x07addressJ\x00\x00\x20\x00U\ntotal_sizeJ\x00\x00\x20\x00U\x0csegment_typeU\x05small\
U\x0fsegment_pool_idK\x00K\x01\x86U\x06blocks]uaU\x0ddevice_traces]](}(U\x06actionU\x0dsegment_allocU\x04addrJ\x00\x00\x20\x00\
U\x04sizeJ\x00\x00\x20\x00U\x06streamK\x00u}(U\x06actionU\x05allocU\x04addrJ\x00\x00\x20\x00U\x04sizeM\x00\x02U\x06streamK\x00\
U\x07pool_idK\x00K\x01\x86ueau.";
    place.write("graph.pickle", graph);
    let told = place.says("replay graph.pickle");
    assert!(told.contains("2.00 MiB were held in pools of CUDA graphs"), "{told}");
}

const FOUR: &[u8] = include_bytes!("../../../sim/tests/sizes/encoder__default__4.pickle.gz");
const EIGHT: &[u8] = include_bytes!("../../../sim/tests/sizes/encoder__default__8.pickle.gz");

fn sizes() -> Sandbox {
    let place = place();
    place.write("four.pickle.gz", FOUR);
    place.write("eight.pickle.gz", EIGHT);
    place
}

#[test]
fn another_size() {
    let words = "replay --at 4=four.pickle.gz --at 8=eight.pickle.gz --size 32 --limit 1.6GiB";
    assert_snapshot!(sizes().says(words), @r"
    size 32, predicted from 4 and 8 under PyTorch's own settings, limit 1.60 GiB

    peak      reserved 1.66 GiB (between 1.62 GiB and 1.70 GiB), allocated 1.45 GiB
    recorded  size 4: 540.00 MiB, size 8: 764.00 MiB
    fits      no; the largest size that fits in 1.60 GiB is 30
    what if   PyTorch's own                                        1.66 GiB  does not fit
              expandable_segments:True                             1.56 GiB
              max_split_size_mb:32                                 1.60 GiB
              max_split_size_mb:64                                 1.60 GiB
              max_split_size_mb:128                                1.78 GiB  does not fit
              max_split_size_mb:256                                1.66 GiB  does not fit
              max_split_size_mb:512                                1.66 GiB  does not fit
              roundup_power2_divisions:4                           1.75 GiB  does not fit
              roundup_power2_divisions:8                           1.71 GiB  does not fit
              garbage_collection_threshold:0.6                     1.66 GiB  does not fit
              garbage_collection_threshold:0.8                     1.59 GiB
              expandable_segments:True,roundup_power2_divisions:8  1.56 GiB
    best      PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (the largest size that fits is 34)
    ");
}

#[test]
fn another_size_for_programs() {
    let found = json(&sizes(), "--at 8=eight.pickle.gz --at 4=four.pickle.gz --size 16 --limit 2GiB");
    // What a card reserved at that size.
    assert_eq!(found["predicted"]["peak_reserved"], 1134 << 20);
    let [low, high] = ["low", "high"].map(|name| found["predicted"][name].as_u64().unwrap());
    assert!(low <= 1134 << 20 && 1134 << 20 <= high, "{low} {high}");
    assert_eq!((&found["size"], &found["fits"]), (&16.into(), &true.into()));
    assert!(found["largest_size"].as_u64().unwrap() > 32);
}

#[test]
fn sizes_that_cannot_be_compared_are_refused() {
    let place = sizes();
    let refused = |words: &str| place.refuses(&format!("replay {words} --size 32")).trim_end().to_owned();
    let all = [
        refused("--at 4=four.pickle.gz"),
        refused("--at 4=four.pickle.gz --at 4=eight.pickle.gz"),
        refused("--at 4=four.pickle.gz --at 8=capped.pickle.gz"),
    ];
    assert_snapshot!(all.join("\n---\n"), @r"
    error: recordings at two sizes or more are needed
    ---
    error: two recordings are at size 4
    ---
    error: capped.pickle.gz: size 8: memory ran out in this recording, so it is not complete; record a smaller size
    ");
}

#[test]
fn a_recording_that_was_kept_is_the_same_and_small() {
    let place = place();
    for name in ["stacks", "capped", "expandable"] {
        let whole = json(&place, &format!("{name}.pickle.gz --save {name}.ltmem"));
        assert_eq!(json(&place, &format!("{name}.ltmem")), whole);
    }
    let mut pickle = Vec::new();
    flate2::read::MultiGzDecoder::new(EXPANDABLE).read_to_end(&mut pickle).unwrap();
    let kept = std::fs::metadata(place.path("expandable.ltmem")).unwrap().len();
    assert!(kept * 4 < pickle.len() as u64, "{kept} of {}", pickle.len());

    let mut bytes = std::fs::read(place.path("stacks.ltmem")).unwrap();
    bytes[100] ^= 1;
    place.write("damaged.ltmem", &bytes);
    let said = place.refuses("replay damaged.ltmem");
    assert!(said.contains("damaged.ltmem: not a whole recording of Lowtide"), "{said}");
}

#[test]
fn memory_of_the_cpu() {
    let mut history = HostHistory::default();
    for (number, bytes) in [(1, 96 << 20), (2, 3 << 20), (3, 3 << 20)] {
        history.allocated(number, bytes, number * 1000);
    }
    history.refused(40 << 20, 4000);
    history.freed(1, 5000);
    let place = sandbox();
    let mut bytes = Vec::new();
    history.into_snapshot(Some(128 << 20)).write_recording(&mut bytes).unwrap();
    place.write("run.ltmem", &bytes);
    assert_snapshot!(place.says("replay run.ltmem"), @r"
    run.ltmem, CPU: 5 events, replayed, limit 128.00 MiB (the limit it was recorded under; --limit sets another)

    peak      102.00 MiB
    largest   96.00 MiB
              6.00 MiB in 2 tensors of 3.00 MiB
    OOM       a request was refused: it asked for 40.00 MiB (event 3, 0.0 s after the first event)
    ");
    let narrow = json(&place, "run.ltmem --limit 100MiB");
    assert_eq!((&narrow["simulated"]["num_ooms"], &narrow["simulated"]["first_oom"]["event"]), (&2.into(), &2.into()));
    assert_eq!(json(&place, "run.ltmem --limit 200MiB")["simulated"]["num_ooms"], 0);
}

#[test]
fn memory_of_the_cpu_at_another_size() {
    let place = sandbox();
    for size in [2_u64, 4] {
        let mut history = HostHistory::default();
        history.allocated(1, 64 << 20, 0);
        history.allocated(2, size << 20, 1);
        history.freed(2, 2);
        let mut bytes = Vec::new();
        history.into_snapshot(None).write_recording(&mut bytes).unwrap();
        place.write(&format!("{size}.ltmem"), &bytes);
    }
    assert_snapshot!(place.says("replay --at 2=2.ltmem --at 4=4.ltmem --size 16 --limit 100MiB"), @r"
    size 16, predicted from 2 and 4, on a CPU, limit 100.00 MiB

    peak      80.00 MiB (between 78.40 MiB and 81.60 MiB)
    recorded  size 2: 66.00 MiB, size 4: 68.00 MiB
    fits      yes; the largest size that fits in 100.00 MiB is 36
    ");
}
