//! `--inject-oom` and `--schedule-from`.

use insta::assert_snapshot;
use serde_json::Value;

use crate::kit::Place;

/// Four steps with an evaluation and a checkpoint after each.
const BUSY: &str = "--set eval.every=1 --set eval.batches=1 --set save.every=1";

fn figures(place: &Place, out: &str) -> [Value; 4] {
    let summary = place.summary(out);
    ["oom_errors", "oom_recovered", "samples_seen", "samples_lost"].map(|key| summary[key].clone())
}

#[test]
fn a_passing_error_in_any_phase_leaves_no_trace() {
    let place = Place::new();
    place.train("whole", BUSY);
    for (phase, alloc) in [("forward", 9), ("backward", 9), ("optimizer", 2), ("eval", 9), ("save", 2)] {
        for alloc in [1, alloc] {
            let out = format!("{phase}-{alloc}");
            place.train(&out, &format!("{BUSY} --inject-oom step=2,phase={phase},alloc={alloc}"));
            assert_eq!(place.hash(&out), place.hash("whole"), "{out}");
            assert_eq!(figures(&place, &out), [1, 1, 32, 0], "{out}");
        }
    }
}

#[test]
fn many_errors_in_one_run_leave_no_trace() {
    let place = Place::new();
    place.train("whole", BUSY);
    let mut words = BUSY.to_owned();
    for step in 1..=4 {
        let compute = if step % 2 == 0 { "forward" } else { "backward" };
        for (phase, alloc) in [(compute, 2 * step), ("eval", 2 * step), ("save", 1 + step % 2)] {
            words += &format!(" --inject-oom step={step},phase={phase},alloc={alloc}");
        }
    }
    place.train("out", &format!("{words} --inject-oom step=4,phase=optimizer"));
    assert_eq!(place.hash("out"), place.hash("whole"));
    assert_eq!(figures(&place, "out"), [13, 13, 32, 0]);
}

#[test]
fn a_run_that_had_to_split_is_made_again_from_its_schedule() {
    let place = Place::new();
    for (out, step, times) in [("once", 2, 2), ("to-the-end", 3, 6)] {
        let inject = format!("--inject-oom step={step},phase=backward,times={times}");
        place.train(out, &format!("{BUSY} {inject}"));
        let again = format!("{out}-again");
        place.train(&again, &format!("{BUSY} --schedule-from {out}"));
        assert_eq!(place.hash(&again), place.hash(out), "{out}");
        assert_eq!(figures(&place, &again), [0, 0, 32, 0]);
        assert_eq!(place.text(&format!("{again}/schedule.jsonl")), place.text(&format!("{out}/schedule.jsonl")));
    }
    let undisturbed = "{\"schema\":1,\"step\":2,\"samples\":8,\"micro_batch\":8,\"loss_chunks\":1,\"recompute\":0}";
    assert!(!place.text("once/schedule.jsonl").contains(undisturbed));
}

#[test]
fn one_that_had_to_split_at_the_line_too() {
    let place = Place::new();
    place.train("free", "");
    let line = place.summary("free")["peak_allocated_bytes"].as_u64().unwrap() * 3 / 4;
    place.train("held", &format!("--limit {line}"));
    assert_ne!(place.hash("held"), place.hash("free"), "other pieces draw other dropout");
    place.train("again", "--schedule-from held");
    assert_eq!(place.hash("again"), place.hash("held"));
    assert_eq!(figures(&place, "again"), [0, 0, 32, 0]);
}

#[test]
fn an_error_that_stays_ends_the_run_and_a_resume_ends_it_well() {
    let place = Place::new();
    place.train("whole", BUSY);
    for phase in ["forward", "backward", "optimizer", "save"] {
        let inject = format!("--inject-oom step=3,phase={phase},times=1000");
        place.ends(3, &format!("train tiny.yaml --device cpu --out {phase} {BUSY} {inject}"));
        place.resume(phase, "");
        assert_eq!(place.hash(phase), place.hash("whole"), "{phase}");
    }
}

#[test]
fn an_injection_that_cannot_be_read() {
    let place = Place::new();
    let ran = place.ends(2, "train tiny.yaml --device cpu --out out --inject-oom step=0,phase=backward");
    assert_snapshot!(ran.stderr, @r"
    error: invalid value 'step=0,phase=backward' for '--inject-oom <step=N,phase=PHASE>': step must be a whole number from 1 on, not `0`

    For more information, try '--help'.
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn a_schedule_that_cannot_be_followed() {
    let place = Place::new();
    place.train("out", "");
    let mut said = String::new();
    for words in ["nowhere", "out --set train.batch=4", "out --set train.steps=5"] {
        let ran = place.ends(2, &format!("train tiny.yaml --device cpu --out new --schedule-from {words}"));
        said += &ran.stderr;
        assert!(!place.path("new").exists());
    }
    assert_snapshot!(said, @r"
    error: nowhere/schedule.jsonl: there is no schedule to follow
    hint: name the folder of a run with --schedule-from
    error: out/schedule.jsonl: its steps have 8 samples, and this run's have 4
    hint: use --set train.batch=8
    error: out/schedule.jsonl: it has 4 steps, and this run has 5
    hint: use --set train.steps=4
    ");
}

#[test]
fn without_recovery_the_first_error_ends_the_run_with_its_state_saved() {
    for phase in ["forward", "backward", "optimizer", "eval"] {
        let place = Place::new();
        let words = format!("--set memory.recover=false --set eval.every=1 --inject-oom step=2,phase={phase}");
        let ran = place.ends(3, &format!("train tiny.yaml --device cpu --out out {words}"));
        assert!(ran.stderr.contains("and recovery is off"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("retrying"), "{}", ran.stderr);
        let summary = place.summary("out");
        assert_eq!((&summary["stopped"], &summary["oom_errors"]), (&"line".into(), &1.into()), "{summary}");

        // It goes on from there, and ends as a run that nothing happened to.
        place.resume("out", "--set memory.recover=true");
        place.train("quiet", "--set eval.every=1");
        assert_eq!(place.hash("out"), place.hash("quiet"), "{phase}");
    }
}
