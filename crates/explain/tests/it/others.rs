//! Who else is on a card: a desktop is not ended, a free card comes first, and figures that are guessed are called that.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Cause, Context, HoldingKind, Lever, Relation, Verdict, explain};

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap()
}

/// A line of nvidia-smi's table of processes.
fn process(pid: u32, kind: &str, name: &str, mib: u32) -> String {
    format!("|    0   N/A  N/A      {pid}      {kind}   {name}                {mib}MiB |\n")
}

fn card(index: u32, used: u32, total: u32) -> String {
    format!(
        "|   {index}  NVIDIA RTX A6000               Off |   00000000:1B:00.0 Off |                  Off |\n\
         | 30%   62C    P2            250W /  300W |   {used}MiB /  {total}MiB |     98%      Default |\n"
    )
}

/// What an older PyTorch says on a card of 47.54 GiB that others fill.
const FILLED: &str = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 47.54 GiB total \
    capacity; 1.10 GiB already allocated; 301.44 MiB free; 1.12 GiB reserved in total by PyTorch)\n";
const MOVE: &str = "Traceback (most recent call last):\n  File \"/home/a/t.py\", line 51, in <module>\n    model = Net().cuda()\n  \
    File \"/venv/lib/python3.10/site-packages/torch/nn/modules/module.py\", line 911, in cuda\n    return self._apply(f)\n";

#[test]
fn a_desktop_is_not_ended() {
    let table = [
        process(1211, "G", "/usr/lib/xorg/Xorg", 601),
        process(1491, "G", "/usr/bin/gnome-shell", 212),
        process(2491, "G", "/usr/lib/firefox/firefox", 402),
        process(9120, "C", "python", 6380),
    ];
    let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0 has a total capacity of 7.78 GiB of \
        which 212.00 MiB is free. Process 1211 has 601.00 MiB memory in use. Process 1491 has 212.00 MiB memory in use. Process \
        2491 has 402.00 MiB memory in use. Including non-PyTorch memory, this process has 6.30 GiB memory in use. Of the allocated \
        memory 5.90 GiB is allocated by PyTorch, and 80.00 MiB is reserved by PyTorch but unallocated.\n";
    let text = verdict(&format!("{}{message}", table.concat())).advice.remove(0).text;
    assert!(text.starts_with("End process 2491 /usr/lib/firefox/firefox (402.00 MiB), if it is yours"), "{text}");
    assert!(
        text.contains("The desktop's part stays (process 1211 /usr/lib/xorg/Xorg (601.00 MiB), process 1491"),
        "{text}"
    );
}

#[test]
fn a_card_that_is_free_comes_before_anybody_is_ended() {
    let cards = format!("{}{}", card(0, 46211, 49140), card(1, 4, 49140));
    let processes =
        format!("{}{}", process(8812, "C", "/home/b/python", 45102), process(2011, "G", "/usr/lib/xorg/Xorg", 9));
    let verdict = verdict(&format!("{cards}{processes}{MOVE}{FILLED}"));
    let [first, second, ..] = &*verdict.advice else { panic!("{:?}", verdict.advice) };
    // Nothing was computed yet, so that no batch is second.
    assert_eq!([first.lever, second.lever], [Lever::OtherCard, Lever::EndOtherProcess]);
    assert!(first.text.contains("CUDA_VISIBLE_DEVICES=1"), "{}", first.text);
    // Nine MiB are not worth a word.
    assert!(second.text.contains("8812") && !second.text.contains("2011"), "{}", second.text);
}

#[test]
fn what_nobody_counted_is_not_called_others() {
    let verdict = verdict(FILLED);
    assert!(verdict.holdings.iter().all(|holding| holding.by != HoldingKind::Others), "{:?}", verdict.holdings);
    let unknown = verdict.holdings.iter().find(|holding| holding.by == HoldingKind::NotToldApart).unwrap();
    assert_eq!(unknown.bytes.to_string(), "46.13 GiB");
    assert!(verdict.advice[0].text.contains("who else holds about 45.13 GiB"), "{}", verdict.advice[0].text);
}

#[test]
fn a_table_without_processes_is_not_asked_again() {
    let table = "|  No running processes found                                                 |\n";
    let text = verdict(&format!("{}{table}{FILLED}", card(0, 48000, 49140))).advice.remove(0).text;
    assert!(text.contains("fuser -v /dev/nvidia*"), "{text}");
}

#[test]
fn contexts_of_ranks_are_the_reason_where_they_are_what_is_missing() {
    let ranks = "torch.distributed: world size 4, one process per GPU\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to \
        allocate 1.96 GiB. GPU 0 has a total capacity of 39.39 GiB of which 1.02 GiB is free. Process 90211 has 36.10 GiB memory \
        in use. Process 90212 has 784.00 MiB memory in use. Process 90213 has 784.00 MiB memory in use. Process 90214 has 784.00 \
        MiB memory in use. Of the allocated memory 34.81 GiB is allocated by PyTorch, and 540.12 MiB is reserved by PyTorch but \
        unallocated.\n";
    let few = verdict(ranks);
    assert!(few.advice[0].text.contains("torch.cuda.set_device(local_rank)"), "{:?}", few.advice[0]);
    assert!(few.evidence.iter().any(|text| text.contains("without them it would have fitted")), "{:?}", few.evidence);
    let many = verdict(&ranks.replace("allocate 1.96 GiB", "allocate 9.80 GiB"));
    assert_ne!(many.advice[0].lever, Lever::EndOtherProcess, "{:?}", many.advice[0]);
}

#[test]
fn where_there_was_room_nobody_is_blamed_for_sure() {
    let message = "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 24.00 GiB total capacity; 1.21 GiB already \
        allocated; 20.11 GiB free; 1.30 GiB reserved in total by PyTorch)\n";
    let frame = "Traceback (most recent call last):\n  File \"run.py\", line 14, in <module>\n    x = torch.zeros(1024, 1024, 128)\n";
    let open = verdict(&format!("{frame}{message}"));
    assert!(open.is_open() && open.cause == Cause::OtherProcess, "{open:?}");
    assert_eq!([open.advice[0].lever, open.advice[1].lever], [Lever::EndOtherProcess, Lever::RaiseLimit]);
    assert!(open.advice[0].text.starts_with("Watch who holds the card while the program starts"), "{:?}", open.advice);
    // One tensor that a line makes has no batch.
    assert!(open.advice.iter().all(|advice| advice.lever != Lever::MicroBatch), "{:?}", open.advice);
    assert!(!verdict(FILLED).is_open());
}

#[test]
fn cards_of_amd_have_tools_of_their_own() {
    for message in
        ["RuntimeError: HIP error: out of memory\n", ":0:rocdevice.cpp: HSA_STATUS_ERROR_OUT_OF_RESOURCES: failed\n"]
    {
        let text: String = verdict(message).advice.into_iter().map(|advice| advice.text).collect();
        assert!(text.contains("rocm-smi") && text.contains("HIP_VISIBLE_DEVICES"), "{text}");
        assert!(!text.contains("nvidia-smi") && !text.contains("CUDA_VISIBLE"), "{text}");
    }
}

/// A card of 79 GiB of which this process has 38 and nobody is named who has the rest.
const SHARED: &str = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 3 has a total capacity of 79.15 \
    GiB of which 512.00 MiB is free. Including non-PyTorch memory, this process has 38.00 GiB memory in use. Of the allocated memory \
    37.00 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.\n";

#[test]
fn whoever_is_not_named_need_not_be_a_rank() {
    let verdict = verdict(&format!("$ torchrun --nproc_per_node=8 train.py\n{SHARED}"));
    let text = &verdict.advice[0].text;
    assert!(text.starts_with("Find out who else holds") && text.contains("nvidia-smi"), "{text}");
    assert!(text.contains("where N is a free card in nvidia-smi (3 is full), set before the launcher"), "{text}");
}

#[test]
fn ranks_have_numbers_near_each_other() {
    let holders = |first: u32, second: u32| {
        let message = format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
             512.00 MiB is free. Process {first} has 39.10 GiB memory in use. Process {second} has 39.40 GiB memory in use. Of the \
             allocated memory 38.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.\n"
        );
        verdict(&format!("$ torchrun --nproc_per_node=8 train.py\n[rank0]: step 3 loss 2.1\n{message}"))
    };
    let far = holders(812, 123_456);
    assert!(far.holders.iter().all(|holder| holder.relation == Relation::Other), "{:?}", far.holders);
    assert!(far.advice[0].text.starts_with("End process 123456"), "{}", far.advice[0].text);
    let near = holders(123_400, 123_900);
    assert!(near.holders.iter().all(|holder| holder.relation == Relation::SameJob), "{:?}", near.holders);
    let text = &near.advice[0].text;
    assert!(text.starts_with("Give every rank a card of its own") && text.contains("whether another job"), "{text}");
}
