//! `kill -9` at any moment.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::kit::Place;

/// A checkpoint after every step of a model that takes no time.
const BUSY: &str = "--set train.steps=60 --set model.n_layer=1 --set model.n_embd=16 --set train.batch=2 \
                    --set save.every=1 --set eval.every=7 --set eval.batches=1";

const KILLS: u32 = 50;
/// Kills of one run before it is left to end.
const KILLS_OF_A_RUN: u32 = 5;

/// Starts the run, or goes on with it, and kills it; whether the kill came in time.
fn killed(place: &Place, out: &str, turn: u64, wait: Duration) -> bool {
    let mut child = start(place, out).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Every third one is killed from its first moment on, the others once they train.
    if !turn.is_multiple_of(3) {
        let steps = || fs::metadata(place.path(&format!("{out}/schedule.jsonl"))).map_or(0, |file| file.len());
        let (before, patience) = (steps(), Instant::now());
        while steps() <= before && child.try_wait().unwrap().is_none() && patience.elapsed().as_secs() < 20 {
            sleep(Duration::from_millis(1));
        }
    }
    sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap().code().is_none()
}

fn start(place: &Place, out: &str) -> std::process::Command {
    if place.path(&format!("{out}/config.yaml")).exists() {
        return place.command(&format!("train --resume --device cpu --out {out}"));
    }
    place.command(&format!("train tiny.yaml --device cpu --out {out} {BUSY}"))
}

#[test]
fn fifty_kills_at_random_moments_leave_no_trace() {
    let place = Place::new();
    place.train("whole", BUSY);
    let mut random = 88_172_645_463_325_252_u64;
    let mut kills = 0;
    for run in 0.. {
        assert!(run < 40, "only {kills} kills came in time");
        let out = format!("run-{run}");
        for turn in 0..KILLS_OF_A_RUN {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let most = if turn % 3 == 0 { 500 } else { 60 };
            kills += u32::from(killed(&place, &out, turn.into(), Duration::from_micros(random % (most * 1000))));
        }
        let ended = start(&place, &out).output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(place.hash(&out), place.hash("whole"), "{out}");
        assert_eq!(place.summary(&out)["samples_lost"], 0);
        assert_eq!(place.text(&format!("{out}/schedule.jsonl")).lines().count(), 60);
        if kills >= KILLS {
            return;
        }
    }
}
