//! Ranks with different memory: those that have more compute more samples of a step.

use super::kit::{PLAIN, difference, ended, free_port, progress, rank, weights};
use super::samples::ROUNDING;
use crate::kit::Place;

/// Trains on ranks with these limits, to a good end.
#[track_caller]
fn train(place: &Place, limits: &[&str], words: &str) {
    let (port, world) = (free_port(), limits.len() as u32);
    let start = |(number, limit): (u32, &&str)| {
        rank(place, (number, world), port, &format!("train --device cpu --limit {limit} {words}"))
    };
    let ranks: Vec<_> = (0..).zip(limits).map(start).collect();
    for ran in ranks.into_iter().map(ended) {
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
}

#[test]
fn shares_follow_memory_and_weights_are_those_of_even_shares_up_to_rounding() {
    let place = Place::new();
    let words = format!("{PLAIN} --set train.steps=6 --set save.every=1 --set save.keep=10 --set train.batch=16");
    place.train("even", &format!("{words} --ranks 2"));
    let uneven = format!("{words} --set ranks.uneven=true");
    train(&place, &["64MiB", "16MiB"], &format!("tiny.yaml --out uneven {uneven}"));
    let apart = difference(&weights(&place, "even"), &weights(&place, "uneven"));
    println!("uneven shares: weights differ by up to {apart:e}");
    assert!(apart < ROUNDING, "{apart}");
    let told = place.text("uneven/events.jsonl");
    assert!(told.contains("ranks compute 13, 3 samples of each step, as their memory allows"), "{told}");
    for step in 1..=6 {
        for key in ["next_sample", "step"] {
            assert_eq!(progress(&place, "uneven", step)[key], progress(&place, "even", step)[key]);
        }
    }
    assert_eq!(place.summary("uneven")["samples_seen"], 96);
    assert_eq!(place.summary("uneven")["samples_lost"], 0);
}

#[test]
fn a_run_on_uneven_ranks_resumes_on_others() {
    let place = Place::new();
    let words = format!("{PLAIN} --set train.batch=12 --set save.every=1 --set save.keep=10");
    place.train("even", &format!("{words} --ranks 2 --set train.steps=6"));
    let uneven = format!("{words} --set ranks.uneven=true");
    train(&place, &["64MiB", "16MiB", "32MiB"], &format!("tiny.yaml --out cut {uneven} --set train.steps=2"));
    train(&place, &["16MiB", "64MiB"], "--resume --out cut --set train.steps=4");
    place.resume("cut", "--limit none --set train.steps=6");
    let apart = difference(&weights(&place, "even"), &weights(&place, "cut"));
    assert!(apart < ROUNDING, "{apart}");
    for step in 1..=6 {
        assert_eq!(progress(&place, "cut", step)["next_sample"], progress(&place, "even", step)["next_sample"]);
    }
    assert_eq!(place.summary("cut")["samples_seen"], 72);
}

#[test]
fn errors_on_uneven_ranks_leave_no_trace() {
    let place = Place::new();
    let words = "tiny.yaml --set ranks.uneven=true --set train.batch=16 --set train.micro_batch=8";
    train(&place, &["64MiB", "16MiB"], &format!("--out whole {words}"));
    let inject = "--inject-oom step=1,phase=forward,rank=0 --inject-oom step=2,phase=backward,alloc=9,rank=1 \
                  --inject-oom step=3,phase=optimizer,rank=1";
    train(&place, &["64MiB", "16MiB"], &format!("--out failed {words} {inject}"));
    assert_eq!(place.hash("failed"), place.hash("whole"));
    assert_eq!(place.summary("failed")["oom_recovered"], 3);
}

#[test]
fn limits_that_differ_are_refused_where_shares_are_even() {
    let place = Place::new();
    let port = free_port();
    let words = "train tiny.yaml --device cpu --out out";
    let first = rank(&place, (0, 2), port, &format!("{words} --limit 64MiB"));
    let second = rank(&place, (1, 2), port, &format!("{words} --limit 16MiB"));
    let (first, second) = (ended(first), ended(second));
    assert_eq!((first.code, second.code), (Some(2), Some(2)));
    assert!(second.stderr.contains("memory.limit"), "{}", second.stderr);
    assert!(!place.path("out").exists());
}
