//! `kill -9` at any moment.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::kit::Place;
use crate::moments::{Moment, Moments};

/// A checkpoint after every step of a model that takes no time.
const BUSY: &str = "--set train.steps=40 --set model.n_layer=1 --set model.n_embd=16 --set train.batch=2 \
                    --set save.every=1 --set eval.every=7 --set eval.batches=1";
const KILLS: u32 = 50;
/// Kills of one run, one start after the other, before it is let to its end.
const IN_A_ROW: usize = 4;

/// Starts a run and kills it; whether the kill came before its summary was written.
fn killed(place: &Place, out: &str, moment: Moment) -> bool {
    let mut child = start(place, out).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    moment.wait(&mut child, place, out);
    child.kill().unwrap();
    child.wait().unwrap();
    !place.path(&format!("{out}/summary.json")).exists()
}

/// Goes on with the run, or starts it where the kill came before there was one.
fn start(place: &Place, out: &str) -> Command {
    if place.path(&format!("{out}/config.yaml")).exists() {
        return place.command(&format!("train --resume --device cpu --out {out}"));
    }
    place.command(&format!("train tiny.yaml --device cpu --out {out} {BUSY}"))
}

#[test]
fn each_of_fifty_kills_at_random_moments_leaves_no_trace() {
    let place = Place::new();
    let begun = Instant::now();
    place.train("whole", BUSY);
    let mut moments = Moments::new(88_172_645_463_325_252, &place, "whole", begun.elapsed());
    let (hash, schedule) = (place.hash("whole"), place.text("whole/schedule.jsonl"));
    let mut kills = 0;
    for run in 0.. {
        assert!(run < KILLS, "only {kills} kills came in time");
        let out = format!("run-{run}");
        for moment in moments.row(IN_A_ROW) {
            let in_time = killed(&place, &out, moment);
            kills += u32::from(in_time);
            if !in_time || kills == KILLS {
                break;
            }
        }

        let ended = start(&place, &out).output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{out}: {}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(place.hash(&out), hash, "{out}");
        assert_eq!(place.summary(&out)["samples_lost"], 0, "{out}");
        assert_eq!(place.text(&format!("{out}/schedule.jsonl")), schedule, "{out}");
        fs::remove_dir_all(place.path(&out)).unwrap();
        if kills == KILLS {
            return;
        }
    }
}
