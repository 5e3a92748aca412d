//! A run folder that is moved, deleted or replaced while the run goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lowtide_core::{Event, Record};

use crate::kit::Place;

/// Goes on until somebody ends it.
const ENDLESS: &str = "--set train.steps=1000000 --set model.n_layer=1 --set model.n_embd=16 --set train.batch=2 \
                       --set save.every=20 --set eval.every=null";

/// A run under way in `out`, whose words are kept.
fn start(place: &Place, out: &str) -> Child {
    let mut command = place.command(&format!("train tiny.yaml --device cpu --out {out} {ENDLESS}"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the first checkpoint", || newest(&place.path(out)) > Some(0));
    child
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed().as_secs() < 60, "{what} never came");
        sleep(Duration::from_millis(10));
    }
}

/// The step of the newest checkpoint of the run in a folder.
fn newest(run: &Path) -> Option<u64> {
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max()
}

/// Ends it after it has saved once more in `run`; its last words.
#[track_caller]
fn end(mut child: Child, run: &Path) -> String {
    let (before, begun) = (newest(run), Instant::now());
    while newest(run) <= before {
        if child.try_wait().unwrap().is_some() || begun.elapsed().as_secs() >= 60 {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("another checkpoint never came, {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        sleep(Duration::from_millis(10));
    }
    let kill = format!("kill -TERM {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{text}");
    text
}

/// Whether a run is whole, and its last words lead to it.
#[track_caller]
fn check(place: &Place, text: &str, run: &Path) {
    let run = run.display();
    let end = format!("hint: resume with lowtide train --resume --out {run}\neverything about this run is in {run}\n");
    assert!(text.ends_with(&end), "{end}{text}");
    let events = fs::read_to_string(format!("{run}/events.jsonl")).unwrap();
    let events: Vec<Record> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(matches!(events[0].event, Event::RunStarted { .. }));
    assert!(matches!(events[events.len() - 1].event, Event::Stopped { .. }));
    let steps = events.iter().filter(|record| matches!(record.event, Event::StepDone { .. })).count();
    let schedule = fs::read_to_string(format!("{run}/schedule.jsonl")).unwrap();
    let summary: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(format!("{run}/summary.json")).unwrap()).unwrap();
    assert_eq!(summary["steps"], steps);
    assert_eq!(schedule.lines().count(), steps);
    assert!(Path::new(&format!("{run}/tensorboard")).is_dir());
    place.ends(0, &format!("train --resume --device cpu --out {run} --set train.steps={}", steps + 2));
    place.ends(0, &format!("eval {run} --device cpu --set eval.batches=1"));
}

fn real(place: &Place, name: &str) -> PathBuf {
    place.path(name).canonicalize().unwrap()
}

#[test]
fn one_that_is_moved_is_followed() {
    let place = Place::new();
    let child = start(&place, "out");
    fs::create_dir(place.path("elsewhere")).unwrap();
    fs::rename(place.path("out"), place.path("elsewhere/now")).unwrap();
    let now = real(&place, "elsewhere/now");
    let text = end(child, &now);
    assert!(
        text.contains(&format!("note: the run folder was moved: everything is written to {}\n", now.display())),
        "{text}"
    );
    assert!(!place.path("out").exists());
    check(&place, &text, &now);
}

#[test]
fn one_above_it_may_be_moved_and_another_take_its_place() {
    let place = Place::new();
    let child = start(&place, "runs/out");
    fs::rename(place.path("runs"), place.path("old-runs")).unwrap();
    fs::create_dir_all(place.path("runs/out")).unwrap();
    let now = real(&place, "old-runs/out");
    let text = end(child, &now);
    assert!(place.names("runs/out").is_empty());
    check(&place, &text, &now);
}

#[test]
fn one_that_is_deleted_is_saved_again_beside_it() {
    let place = Place::new();
    let child = start(&place, "out");
    fs::rename(place.path("out"), place.path("doomed")).unwrap();
    // The run may write while files are deleted.
    until("its end", || fs::remove_dir_all(place.path("doomed")).is_ok());
    let rescued = || place.names(".").into_iter().find(|name| name.ends_with("-rescued"));
    until("the new folder", || rescued().is_some_and(|name| newest(&place.path(&name)).is_some()));
    let now = place.path(&rescued().unwrap());
    let text = end(child, &now);
    assert!(text.contains("note: the run folder was deleted: everything is saved again and written to "), "{text}");
    let shown = text.lines().last().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(place.path(&shown).canonicalize().unwrap(), now.canonicalize().unwrap());
    check(&place, &text.replace(&shown, &now.display().to_string()), &now);
}

#[test]
fn files_that_are_deleted_in_it_are_written_again() {
    let place = Place::new();
    let child = start(&place, "out");
    for name in ["events.jsonl", "schedule.jsonl", "config.yaml"] {
        fs::remove_file(place.path("out").join(name)).unwrap();
    }
    let _ = fs::remove_dir_all(place.path("out/tensorboard"));
    until("its configuration", || place.path("out/config.yaml").exists());
    let text = end(child, &place.path("out"));
    assert!(text.contains("note: the run folder was deleted: "), "{text}");
    check(&place, &text.replace(" out\n", &format!(" {}\n", place.path("out").display())), &place.path("out"));
}
