//! What decides the bits: written down, told where it changes, remembered, and fixed by `--deterministic`.

use std::fs;
use std::process::Command;

use insta::assert_snapshot;
use lowtide_core::{Event, Numerics};
use lowtide_testkit::Printout;

use crate::kit::{Place, lowtide};

/// A few steps of each configuration that comes with Lowtide, and the runs that it makes.
const SHIPPED: [(&str, &str, &[&str]); 4] = [
    ("gpt", "--set train.steps=3 --set train.batch=8 --set eval.batches=1", &[""]),
    ("qca", "--set train.steps=1 --set eval.every=null", &[""]),
    ("deblur", "--set train.steps=2 --set eval.at_start=false --set eval.every=null", &[""]),
    (
        "scoring",
        "--set train.steps=3 --set data.count=200 --set eval.every=null --set eval.patience=null",
        &["lstm", "gnn_det", "gvae"],
    ),
];

/// Words of the environment that choose other bits, one each.
const OTHERS: [(&str, &str); 8] = [
    ("OMP_NUM_THREADS", "2"),
    ("OMP_DYNAMIC", "TRUE"),
    ("MKL_NUM_THREADS", "2"),
    ("MKL_DYNAMIC", "TRUE"),
    ("MKL_CBWR", "COMPATIBLE"),
    ("MKL_ENABLE_INSTRUCTIONS", "SSE4_2"),
    ("ATEN_CPU_CAPABILITY", "default"),
    ("DNNL_MAX_CPU_ISA", "SSE41"),
];

fn started(place: &Place, out: &str) -> Numerics {
    let events = place.events(out).into_iter().rev();
    let mut starts = events.filter_map(|event| match event {
        Event::RunStarted { numerics, .. } => numerics,
        _ => None,
    });
    *starts.next().expect("a start tells of its numerics")
}

/// The weights of every run in `out`.
fn hashes(place: &Place, out: &str, runs: &[&str]) -> Vec<String> {
    runs.iter().map(|run| place.hash(&format!("{out}/{run}"))).collect()
}

/// Trains in `out` as `command` is set up; its words come after.
#[track_caller]
fn train(mut command: Command, words: &str) {
    let ran = Printout::of(command.args(words.split_whitespace()).output().unwrap());
    assert_eq!(ran.code, Some(0), "{words}\n{}", ran.stderr);
}

/// `lowtide` in the folder, with as many threads as it takes by itself.
fn plain(place: &Place) -> Command {
    let mut command = place.command("");
    command.env_remove("OMP_NUM_THREADS");
    command
}

/// `lowtide` in the folder, on one processor.
fn on_one_processor(place: &Place) -> Command {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let first = allowed.split([',', '-']).next().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", first]).arg(lowtide()).current_dir(place.path(""));
    command
}

#[test]
fn the_first_event_and_each_checkpoint_tell() {
    let place = Place::new();
    place.train("out", "--threads 2");
    let numerics = started(&place, "out");
    assert_eq!((numerics.choice.device.as_str(), numerics.choice.threads), ("cpu", Some(2)));
    assert_eq!((numerics.threads.libtorch, numerics.versions.libtorch.as_str()), (2, "2.11.0"));
    for text in [&numerics.device, &numerics.instructions.libtorch] {
        assert!(!text.is_empty());
    }
    let state = place.json("out/checkpoints/00000004/state.json");
    assert_eq!(serde_json::from_value::<Numerics>(state["progress"]["numerics"].clone()).unwrap(), numerics);
}

#[test]
fn a_resume_under_other_threads_says_so_and_goes_on() {
    let place = Place::new();
    place.train("out", "--set train.steps=2");
    let ran = place.resume("out", "--set train.steps=3");
    assert!(!ran.stderr.contains("unbroken"), "{}", ran.stderr);
    let ran = place.resume("out", "--set train.steps=4 --threads 2");
    let told: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("unbroken")).collect();
    assert_eq!(told.len(), 1, "{}", ran.stderr);
    assert!(told[0].starts_with("[step 3] bits may be others than those of an unbroken run: "), "{}", told[0]);
    assert!(told[0].contains("threads 1 then, 2 now"), "{}", told[0]);
    let changed = |event: &Event| matches!(event, Event::NumericsChanged { step, .. } if step.get() == 3);
    assert_eq!(place.events("out").iter().filter(|event| changed(event)).count(), 1);
}

#[test]
fn a_resume_remembers_what_the_run_was_started_with() {
    let place = Place::new();
    place.train("out", "--deterministic --set train.steps=2");
    place.train("whole", "--deterministic");
    let ran = place.ends(0, "train --resume --out out --set train.steps=4");
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("--")).collect();
    assert_eq!(lines, ["--device cpu, as the run was started", "--deterministic on, as the run was started"]);
    let choice = started(&place, "out").choice;
    assert_eq!((choice.device.as_str(), choice.deterministic), ("cpu", true));
    assert_eq!(place.hash("out"), place.hash("whole"));
    let ran = place.ends(0, "train --resume --out out --set train.steps=5 --deterministic=false");
    let note = "note: --deterministic off from now on; the run was started with on";
    assert!(ran.stderr.lines().any(|line| line == note), "{}", ran.stderr);
    assert!(!started(&place, "out").choice.deterministic);
}

#[test]
fn a_resumed_series_remembers_too() {
    let place = Place::new();
    let (_, words, runs) = SHIPPED[3];
    place.ends(0, &format!("train scoring --device cpu --deterministic --out out {words}"));
    place.ends(0, "train --resume --out out --set train.steps=4");
    assert!(runs.iter().all(|run| started(&place, &format!("out/{run}")).choice.deterministic));
}

#[test]
fn a_team_that_cannot_be_had_is_refused() {
    let place = Place::new();
    let mut command = place.command("train tiny.yaml --device cpu --out out --deterministic --threads 2");
    let ran = Printout::of(command.env("OMP_THREAD_LIMIT", "1").output().unwrap());
    assert_eq!(ran.code, Some(2));
    assert_snapshot!(ran.stderr, @"error: 2 threads cannot be had: OpenMP gives 1. OMP_THREAD_LIMIT or OMP_MAX_ACTIVE_LEVELS in the environment may be the reason: unset them, or name fewer with --threads");
    assert!(!place.path("out").exists());
}

#[test]
fn runs_with_threads_of_their_own_choice_end_alike() {
    for (name, words, runs) in SHIPPED {
        let place = Place::new();
        let words = |out: u32| format!("train {name} --device cpu --out {out} {words}");
        (0..2).for_each(|out| train(plain(&place), &words(out)));
        assert_eq!(hashes(&place, "1", runs), hashes(&place, "0", runs), "{name}");
    }
}

#[test]
fn deterministic_runs_end_alike_whatever_the_environment_says() {
    for (name, words, runs) in SHIPPED {
        let place = Place::new();
        let words = |out: &str| format!("train {name} --device cpu --deterministic --out {out} {words}");
        train(plain(&place), &words("all"));
        train(on_one_processor(&place), &words("one"));
        let mut others = plain(&place);
        others.envs(OTHERS);
        train(others, &words("others"));
        for out in ["one", "others"] {
            assert_eq!(hashes(&place, out, runs), hashes(&place, "all", runs), "{name}: {out}");
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn without_it_the_environment_decides() {
    let place = Place::new();
    let words = |out: &str| format!("train tiny.yaml --device cpu --out {out}");
    train(plain(&place), &words("all"));
    let mut command = plain(&place);
    command.env("ATEN_CPU_CAPABILITY", "default");
    train(command, &words("others"));
    assert_ne!(place.hash("others"), place.hash("all"), "or the tests above show nothing");
    assert_ne!(started(&place, "others").instructions, started(&place, "all").instructions);
}
