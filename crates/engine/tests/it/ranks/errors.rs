//! Memory that runs out on one rank: all undo the step, take the same answer and end with the same bits.

use lowtide_core::{Event, Record};
use serde_json::Value;

use super::kit::BUSY;
use crate::kit::Place;

fn figures(place: &Place, out: &str) -> [Value; 4] {
    let summary = place.summary(out);
    ["oom_errors", "oom_recovered", "samples_seen", "samples_lost"].map(|key| summary[key].clone())
}

fn records(place: &Place, out: &str) -> Vec<Record> {
    let text = place.text(&format!("{out}/events.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_error_of_one_rank_in_any_phase_leaves_no_trace() {
    let place = Place::new();
    place.train("whole", &format!("{BUSY} --ranks 2"));
    assert_eq!(figures(&place, "whole"), [0, 0, 32, 0]);
    // The second rank allocates nothing to save.
    let phases: [(&str, &[u64]); 5] =
        [("forward", &[1, 9]), ("backward", &[1, 9]), ("optimizer", &[1, 2]), ("eval", &[1, 9]), ("save", &[1])];
    for (phase, allocations) in phases {
        for rank in [0, 1] {
            for alloc in allocations {
                let out = format!("{phase}-{rank}-{alloc}");
                let inject = format!("--inject-oom step=2,phase={phase},alloc={alloc},rank={rank}");
                place.train(&out, &format!("{BUSY} --ranks 2 {inject}"));
                assert_eq!(place.hash(&out), place.hash("whole"), "{out}");
                assert_eq!(figures(&place, &out), [1, 1, 32, 0], "{out}");
                let told = records(&place, &out);
                let failed = told.iter().find(|record| matches!(record.event, Event::OutOfMemory { .. })).unwrap();
                assert_eq!(failed.rank, Some(rank), "{out}");
            }
        }
    }
}

#[test]
fn errors_of_several_ranks_at_once_and_one_after_the_other() {
    let place = Place::new();
    let ranks = format!("{BUSY} --ranks 4");
    place.train("whole", &ranks);
    let at_once = "--inject-oom step=1,phase=backward,rank=1 --inject-oom step=1,phase=forward,rank=3";
    place.train("at-once", &format!("{ranks} {at_once}"));
    assert_eq!(place.hash("at-once"), place.hash("whole"));
    assert_eq!(figures(&place, "at-once"), [2, 2, 32, 0]);
    let mut many = String::new();
    for step in 1..=4 {
        let phase = if step % 2 == 0 { "forward" } else { "backward" };
        for (phase, rank) in [(phase, step - 1), ("eval", 4 - step), ("save", step % 3)] {
            many += &format!(" --inject-oom step={step},phase={phase},rank={rank}");
        }
    }
    place.train("many", &format!("{ranks} {many}"));
    assert_eq!(place.hash("many"), place.hash("whole"));
    assert_eq!(figures(&place, "many"), [12, 12, 32, 0]);
}

#[test]
fn an_error_that_stays_makes_the_pieces_of_all_ranks_smaller() {
    let place = Place::new();
    place.train("cut", &format!("{BUSY} --ranks 2 --inject-oom step=2,phase=backward,times=3,rank=1"));
    let summary = place.summary("cut");
    assert_eq!((&summary["micro_batch_final"], &summary["oom_errors"]), (&1.into(), &3.into()), "{summary}");
    // A run that takes the same pieces from the start of that step has the same bits.
    place.train("again", &format!("{BUSY} --ranks 2 --schedule-from cut"));
    assert_eq!(place.hash("again"), place.hash("cut"));
    assert_eq!(figures(&place, "again"), [0, 0, 32, 0]);
}

#[test]
fn an_error_without_end_ends_all_ranks_with_the_state_saved() {
    let place = Place::new();
    place.train("whole", &format!("{BUSY} --ranks 2"));
    let inject = "--inject-oom step=3,phase=forward,times=1000,rank=1";
    place.ends(3, &format!("train tiny.yaml --device cpu --out out --ranks 2 {BUSY} {inject}"));
    assert_eq!(place.summary("out")["stopped"], "line");
    place.resume("out", "--ranks 2");
    assert_eq!(place.hash("out"), place.hash("whole"));
}

#[test]
fn an_error_while_a_checkpoint_is_loaded() {
    let place = Place::new();
    place.train("whole", &format!("{BUSY} --ranks 2"));
    for rank in [0, 1] {
        let out = format!("out-{rank}");
        place.train(&out, &format!("{BUSY} --ranks 2 --set train.steps=2"));
        let inject = format!("--inject-oom step=1,phase=load,rank={rank}");
        place.resume(&out, &format!("--ranks 2 --set train.steps=4 {inject}"));
        assert_eq!(place.hash(&out), place.hash("whole"));
        assert_eq!(figures(&place, &out), [1, 1, 32, 0]);
    }
}

#[test]
fn pieces_follow_the_rank_with_the_least_room() {
    let place = Place::new();
    place.train("free", "--ranks 2");
    let peak = place.summary("free")["peak_allocated_bytes"].as_u64().unwrap();
    place.train("held", &format!("--ranks 2 --limit {}", peak * 3 / 4));
    let summary = place.summary("held");
    assert!(summary["micro_batch_final"].as_u64().unwrap() < 4, "{summary}");
    assert_eq!((&summary["samples_seen"], &summary["samples_lost"]), (&32.into(), &0.into()));
}

#[test]
fn the_memory_of_every_rank_is_in_the_events() {
    let place = Place::new();
    place.train("out", "--ranks 2 --set watch.log_every=1");
    let told = records(&place, "out");
    let ranks = told.iter().filter(|record| matches!(record.event, Event::Memory { .. })).map(|record| record.rank);
    let ranks: Vec<Option<u32>> = ranks.collect();
    // After each step, and after the evaluation at the end.
    assert_eq!(ranks, [Some(0), Some(1)].repeat(5));
    // Each step is work and waiting for the other, on both ranks.
    let seconds = told.iter().find_map(|record| match record.event {
        Event::StepDone { seconds, .. } => Some(seconds),
        _ => None,
    });
    let parts = told.iter().filter_map(|record| match record.event {
        Event::Memory { worked, waited, .. } => Some((record.rank?, worked? + waited?)),
        _ => None,
    });
    let parts: Vec<(u32, f64)> = parts.collect();
    assert_eq!(parts.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1].repeat(4));
    assert!((parts[0].1 - seconds.unwrap()).abs() < 1e-9, "{parts:?} {seconds:?}");
}
