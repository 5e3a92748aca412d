//! A disk that fills while a checkpoint is written.

use std::process::Command;

use crate::kit::{Place, lowtide};

/// Runs a script that may mount; `None` where this machine does not allow that.
fn with_mounts(place: &Place, script: &str) -> Option<String> {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", script]).current_dir(place.path(""));
        command.env("LOWTIDE", lowtide()).env("OMP_NUM_THREADS", "1").output()
    };
    let allowed = unshare("mkdir -p disk && mount -t tmpfs tmpfs disk").is_ok_and(|output| output.status.success());
    allowed.then(|| String::from_utf8(unshare(script).unwrap().stdout).unwrap())
}

#[test]
fn the_last_good_checkpoint_stays_and_the_run_can_go_on() {
    let place = Place::new();
    place.train("whole", "");
    let script = r#"
        mount -t tmpfs -o size=1m tmpfs disk
        "$LOWTIDE" train tiny.yaml --device cpu --out disk/run --set save.every=1 --set save.keep=9 2>errors
        echo "code $?"
        tail -n 2 errors
        ls -A disk/run/checkpoints
        mount -o remount,size=16m disk
        "$LOWTIDE" train --resume --device cpu --out disk/run 2>/dev/null
        echo "code $?"
        cp disk/run/summary.json .
    "#;
    let Some(printed) = with_mounts(&place, script) else {
        eprintln!("skipped: mounting is not allowed here");
        return;
    };
    insta::assert_snapshot!(printed, @r"
    code 2
    error: disk/run/checkpoints/.00000002.partial/training.safetensors: No space left on device (os error 28)
    hint: the checkpoint disk/run/checkpoints/00000001 is whole: make room, then resume with --resume --out disk/run
    00000000
    00000001
    code 0
    ");
    assert_eq!(place.hash("."), place.hash("whole"));
}

#[test]
fn a_run_that_cannot_begin_leaves_nothing() {
    let place = Place::new();
    let script = r#"
        mount -t tmpfs -o size=64k tmpfs disk
        "$LOWTIDE" train tiny.yaml --device cpu --out disk/run 2>errors
        echo "code $?"
        tail -n 1 errors
        ls -A disk
    "#;
    let Some(printed) = with_mounts(&place, script) else {
        eprintln!("skipped: mounting is not allowed here");
        return;
    };
    insta::assert_snapshot!(printed, @r"
    code 2
    error: disk/run/checkpoints/.00000000.partial/model.safetensors: No space left on device (os error 28)
    ");
}
