//! Signals to a command under way, and what is left of it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::kit::{Place, lives, signal};

/// A command with a process below it that is out of its group and session, and deaf.
const FAMILY: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM INT; echo $$ > deaf; exec sleep 1000' & \
                      while [ ! -s deaf ]; do sleep 0.01; done; echo $$ > ready;";

fn start(place: &Place, options: &[&str], script: &str) -> Child {
    let words = [options, &["--", "sh", "-c", script]].concat();
    let child = place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    place.await_text("ready");
    child
}

#[test]
fn ctrl_c_reaches_the_command_and_nothing_is_left() {
    let place = Place::new();
    let script = format!("{FAMILY} trap 'echo saved > saved; exit 9' INT; while :; do sleep 0.05; done");
    let mut child = start(&place, &["--grace", "300ms"], &script);
    signal("INT", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert_eq!(place.text("saved"), "saved\n");
    assert!(!lives(&place.text("deaf")) && !lives(&place.text("ready")));
    assert_eq!(place.story("runs/sh-1")["ending"], "interrupted");
}

#[test]
fn a_command_that_ignores_sigterm_is_killed() {
    let place = Place::new();
    let mut child = start(&place, &["--grace", "300ms"], &format!("{FAMILY} while :; do sleep 0.05; done"));
    signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(place.story("runs/sh-1")["exit_code"], 137);
    assert!(!lives(&place.text("deaf")) && !lives(&place.text("ready")));
}

/// As long as Slurm and Kubernetes give it, and longer than the grace that is ours.
#[test]
fn after_sigterm_a_command_has_all_the_time_it_wants_to_save() {
    let place = Place::new();
    // Behind a shell that ends at once, the training hears of it by us.
    for script in [
        "trap 'sleep 11; echo saved > saved; exit 5' TERM; echo > ready; while :; do sleep 0.05; done",
        "sh -c 'trap \"sleep 11; echo saved > saved; exit 5\" TERM; echo > ready; while :; do sleep 0.05; done'; exit 7",
    ] {
        for name in ["ready", "saved"] {
            let _ = std::fs::remove_file(place.path(name));
        }
        let mut child = start(&place, &[], script);
        // Twice at once, as `timeout` sends it to a process and to its group.
        signal("TERM", child.id());
        signal("TERM", child.id());
        child.wait().unwrap();
        assert_eq!(place.text("saved"), "saved\n");
    }
}

#[test]
fn a_second_sigterm_ends_patience() {
    let place = Place::new();
    let mut child = start(&place, &[], "trap '' TERM; echo > ready; while :; do sleep 0.05; done");
    let begun = Instant::now();
    signal("TERM", child.id());
    sleep(Duration::from_millis(1200));
    signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(begun.elapsed() > Duration::from_secs(11));
}

#[test]
fn the_signal_that_ends_the_command_ends_lowtide_too() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("KILL", 9), ("SEGV", 11)] {
        let place = Place::new();
        let ran = place.command(&["-q", "--", "sh", "-c", &format!("kill -{name} $$; sleep 10")]).output().unwrap();
        assert_eq!((ran.status.signal(), ran.status.core_dumped()), (Some(number), false), "{name}");
        assert_eq!(place.story("runs/sh-1")["exit_code"], 128 + number);
    }
}

#[test]
fn a_command_that_is_stopped_hears_that_it_should_end() {
    let place = Place::new();
    let script = "trap 'exit 5' TERM; echo $$ > ready; kill -STOP $$; while :; do sleep 0.05; done";
    let mut child = start(&place, &["--grace", "10m"], script);
    signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_second_ctrl_c_ends_patience() {
    let place = Place::new();
    let script = "trap 'echo once > once' INT; echo > ready; while :; do sleep 0.05; done";
    let mut child = start(&place, &["--grace", "100ms"], script);
    signal("INT", child.id());
    place.await_text("once");
    assert_eq!(child.try_wait().unwrap(), None);
    signal("INT", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn other_signals_pass() {
    let place = Place::new();
    let script = "trap 'echo usr1 > heard; exit 4' USR1; echo > ready; while :; do sleep 0.05; done";
    let mut child = start(&place, &[], script);
    signal("USR1", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(place.text("heard"), "usr1\n");
}

#[test]
fn those_below_are_left_to_the_command() {
    for name in ["USR1", "TERM"] {
        let place = Place::new();
        // A data worker has no mind for such signals, and the command needs it to save.
        let script = format!(
            "sleep 1000 & below=$!; trap 'sleep 0.2; kill -0 $below && echo lives > heard; exit 4' {name}; \
             echo > ready; while :; do sleep 0.05; done"
        );
        let mut child = start(&place, &[], &script);
        signal(name, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(4));
        assert_eq!(place.text("heard"), "lives\n");
    }
}

#[test]
fn what_a_command_leaves_behind_is_ended() {
    let place = Place::new();
    let script = format!("{FAMILY} exit 0");
    let mut child = start(&place, &["--grace", "100ms"], &script);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!lives(&place.text("deaf")));
}
