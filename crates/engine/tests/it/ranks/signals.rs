//! Signals to `lowtide train --ranks`, and a rank that is killed.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use lowtide_core::Event;

use super::kit::{engines, kill};
use crate::kit::Place;

const LONG: &str =
    "train tiny.yaml --device cpu --out out --json --ranks 2 --set train.steps=100000 --set eval.every=null";

#[test]
fn a_signal_to_the_front_ends_all_ranks_with_the_state_saved() {
    for signal in ["TERM", "INT"] {
        let place = Place::new();
        let running = place.start(LONG);
        let ranks = engines(running.child.id());
        running.signal(signal);
        assert_eq!(running.wait(), Some(130));
        assert!(ranks.iter().all(|rank| !is_alive(*rank)));
        check_saved(&place);
    }
}

#[test]
fn engines_end_with_a_front_that_is_killed_and_save() {
    let place = Place::new();
    let running = place.start(LONG);
    let ranks = engines(running.child.id());
    assert_eq!(ranks.len(), 2);
    kill("KILL", running.child.id());
    assert_eq!(running.wait(), None);
    wait_for_end(&ranks);
    check_saved(&place);
}

#[test]
fn engines_whose_front_was_killed_before_they_listened_do_not_start() {
    let place = Place::new();
    let mut front = place.command(LONG).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ranks = loop {
        let ranks = engines(front.id());
        if ranks.len() == 2 {
            break ranks;
        }
        thread::sleep(Duration::from_millis(1));
    };
    front.kill().unwrap();
    front.wait().unwrap();
    wait_for_end(&ranks);
}

fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, which may hold anything, is in parentheses; the state is behind it.
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[track_caller]
fn wait_for_end(ranks: &[u32]) {
    let begun = Instant::now();
    while let Some(rank) = ranks.iter().find(|rank| is_alive(**rank)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "engine {rank} is left");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The run was ended by request, and goes on.
#[track_caller]
fn check_saved(place: &Place) {
    let summary = place.summary("out");
    assert_eq!(summary["stopped"], "interrupted");
    let steps = summary["steps"].as_u64().unwrap();
    place.resume("out", &format!("--ranks 2 --set train.steps={}", steps + 1));
}

#[test]
fn a_signal_to_one_rank_is_heard_by_all() {
    let place = Place::new();
    let mut running = place.start(LONG);
    let ranks = engines(running.child.id());
    assert_eq!(ranks.len(), 2);
    kill("USR1", ranks[1]);
    running.wait_for(|event| matches!(event, Event::Note { message, .. } if message.contains("SIGUSR1")));
    kill("TERM", ranks[1]);
    assert_eq!(running.wait(), Some(130));
    assert_eq!(place.summary("out")["stopped"], "interrupted");
}

#[test]
fn a_rank_that_is_killed_is_named_and_the_last_step_is_saved() {
    let place = Place::new();
    for victim in [0, 1] {
        let out = format!("out-{victim}");
        let mut running = place.start(&LONG.replace("--out out", &format!("--out {out}")));
        let ranks = engines(running.child.id());
        kill("KILL", ranks[victim]);
        let stderr = running.child.stderr.take().unwrap();
        let code = running.wait();
        let said = std::io::read_to_string(stderr).unwrap();
        assert_eq!(code, Some(137), "{said}");
        assert!(said.contains(&format!("error: rank {victim} fell silent while ")), "{said}");
        // The first checkpoint is there from the start; only rank 0 can write another.
        let saved = newest_step(&place, &out);
        assert_eq!(saved > 0, victim == 1, "step {saved}");
        let steps = format!("--ranks 2 --set eval.every=null --set train.steps={}", saved + 2);
        place.resume(&out, &steps);
        let whole = format!("whole-{victim}");
        place.train(&whole, &steps);
        assert_eq!(place.hash(&out), place.hash(&whole));
    }
}

/// The step of the newest checkpoint.
fn newest_step(place: &Place, out: &str) -> u64 {
    let checkpoints = fs::read_dir(place.path(&format!("{out}/checkpoints"))).unwrap();
    let steps = checkpoints.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    steps.max().unwrap()
}
