//! Signals to a run under way.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use lowtide_core::Event;

use crate::kit::{Place, Running, lowtide, settled};
use crate::moments::Moments;

const LONG: &str = "--set train.steps=300 --set model.n_layer=1 --set model.n_embd=16 --set train.batch=2 \
                    --set save.every=null --set eval.every=null";

fn start(place: &Place) -> Running {
    place.start(&format!("train tiny.yaml --device cpu --out out --json {LONG}"))
}

#[test]
fn an_interrupted_run_is_saved_and_ends_as_an_unbroken_one() {
    let place = Place::new();
    place.train("whole", LONG);
    let running = start(&place);
    running.signal("INT");
    assert_eq!(running.wait(), Some(130));
    let first = place.summary("out")["steps"].as_u64().unwrap();
    assert!((1..300).contains(&first), "{first} steps");
    assert_eq!(place.summary("out")["stopped"], "interrupted");
    assert!(place.path(&format!("out/checkpoints/{first:08}/state.json")).is_file());

    let running = place.start("train --resume --device cpu --out out --json");
    running.signal("TERM");
    assert_eq!(running.wait(), Some(130));
    let second = place.summary("out")["steps"].as_u64().unwrap();
    assert!((first + 1..300).contains(&second), "{second} steps");

    place.resume("out", "");
    assert_eq!(place.hash("out"), place.hash("whole"));
}

#[test]
fn a_run_that_is_told_to_end_at_any_moment_ends_as_an_unbroken_one() {
    let place = Place::new();
    let begun = Instant::now();
    place.train("whole", LONG);
    let mut moments = Moments::new(0x2545_F491_4F6C_DD1D, &place, "whole", begun.elapsed());
    let mut ended_early = 0;
    for run in 0.. {
        assert!(run < 24, "only {ended_early} signals came in time");
        let out = format!("run-{run}");
        let fresh = format!("train tiny.yaml --device cpu --out {out} {LONG}");
        let mut command = place.command(&fresh);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        moments.next().wait(&mut child, &place, &out);
        let term = format!("kill -TERM {}", child.id());
        assert!(Command::new("sh").args(["-c", &term]).status().unwrap().success());
        // A run that does not hear signals yet has nothing to save, and is ended by the system.
        let code = child.wait().unwrap().code();
        assert!([None, Some(0), Some(130)].contains(&code), "{out}: {code:?}");
        ended_early += u32::from(code == Some(130));

        let resume = format!("train --resume --device cpu --out {out}");
        place.ends(0, if place.path(&format!("{out}/config.yaml")).exists() { &resume } else { &fresh });
        assert_eq!(place.hash(&out), place.hash("whole"), "{out}");
        assert_eq!(place.summary(&out)["samples_lost"], 0, "{out}");
        assert_eq!(place.text(&format!("{out}/schedule.jsonl")), place.text("whole/schedule.jsonl"), "{out}");
        if ended_early == 8 {
            return;
        }
    }
}

#[test]
fn sigusr1_saves_and_goes_on() {
    let place = Place::new();
    let mut running = start(&place);
    running.signal("USR1");
    let saved = running.wait_for(|event| matches!(event, Event::Saved { .. }));
    let Event::Saved { step, .. } = saved else { unreachable!() };
    assert!((1..300).contains(&step.get()), "{step}");
    assert_eq!(running.wait(), Some(0));
    assert_eq!(place.summary("out")["steps"], 300);
}

#[test]
fn sigusr1_is_told_in_the_log_and_never_ends_a_run() {
    let place = Place::new();
    // Sent all the time from when it is the engine on, while the engine's libraries are loaded too.
    let script = r#"
        "$0" "$@" & run=$!; n=0
        until grep -q lowtide-engine /proc/$run/comm; do sleep 0.001; done
        until [ -e out/summary.json ] || [ $n = 600 ]; do kill -USR1 $run; n=$((n + 1)); sleep 0.05; done
        wait $run
    "#;
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(lowtide())
        .args(format!("train tiny.yaml --device cpu --out out {LONG}").split(' ').filter(|word| !word.is_empty()));
    let output = command.env("OMP_NUM_THREADS", "1").current_dir(place.path("")).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(" because SIGUSR1 asked for it; training goes on\n"), "{text}");
}

#[test]
fn a_closed_terminal_saves_and_ends_unless_it_is_to_be_ignored() {
    let place = Place::new();
    let running = start(&place);
    running.signal("HUP");
    running.signal("HUP");
    assert_eq!(running.wait(), Some(130));
    let steps = place.summary("out")["steps"].as_u64().unwrap();
    assert!(place.path(&format!("out/checkpoints/{steps:08}/state.json")).is_file());

    let mut command = Command::new("nohup");
    command.arg(lowtide()).args(format!("train tiny.yaml --device cpu --out kept {LONG}").split_whitespace());
    command.env("OMP_NUM_THREADS", "1").current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    while !place.path("kept/schedule.jsonl").exists() {
        sleep(Duration::from_millis(5));
    }
    let kill = format!("kill -HUP {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.summary("kept")["steps"], 300);
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_what_fits_is_saved() {
    let place = Place::new();
    place.train("whole", LONG);
    // Checkpoints have less than 64 KiB, events come to more.
    let script = "ulimit -f 128; exec \"$0\" \"$@\"";
    let limited = |words: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", script]).arg(lowtide()).args(words.split_whitespace());
        let output = command.env("OMP_NUM_THREADS", "1").current_dir(place.path("")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let words = LONG.replace("train.steps=300", "train.steps=2000");
    let (code, text) =
        limited(&format!("train tiny.yaml --device cpu --out out {words} --set watch.tensorboard=false"));
    assert_eq!(code, Some(2), "{text}");
    let (error, hint) = text.split_once("error: ").unwrap().1.split_once('\n').unwrap();
    assert_eq!(error, "out/events.jsonl: File too large (os error 27)");
    let saved = place.names("out/checkpoints").into_iter().filter_map(|name| name.parse::<u64>().ok()).max().unwrap();
    assert!(saved > 0, "the steps since the start are saved");
    assert_eq!(
        hint,
        format!(
            "hint: the checkpoint out/checkpoints/{saved:08} is whole: raise the limit on the size of files (ulimit -f), then \
             resume with --resume --out out\n"
        )
    );
    place.ends(0, &format!("train --resume --device cpu --out out --set train.steps={}", saved + 1));
}

#[test]
fn a_killed_run_goes_on_from_its_last_checkpoint() {
    let place = Place::new();
    place.train("whole", LONG);
    let mut running = place.start(&format!("train tiny.yaml --device cpu --out out --json {LONG} --set save.every=5"));
    running.wait_for(|event| matches!(event, Event::Saved { .. }));
    running.signal("KILL");
    assert_eq!(running.wait(), None);
    place.resume("out", "");
    assert_eq!(place.hash("out"), place.hash("whole"));
    assert_eq!(place.text("out/schedule.jsonl").lines().count(), 300);
}

#[test]
fn an_interrupted_run_says_how_to_go_on() {
    let place = Place::new();
    let mut command = place.command(&format!("train tiny.yaml --device cpu --out out {LONG}"));
    let command = command.stderr(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    while !place.path("out/schedule.jsonl").exists() {
        sleep(Duration::from_millis(5));
    }
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stderr).unwrap();
    let end = text.find("hint:").unwrap();
    assert_snapshot!(settled(&text[end..]), @r"
    hint: resume with lowtide train --resume --out out
    everything about this run is in out
    ");
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let place = Place::new();
    let running = start(&place);
    let ran = place.ends(2, "train --resume --device cpu --out out");
    assert_snapshot!(ran.stderr, @r"
    error: out: another run is training in this folder
    hint: name another folder with --out
    ");
    running.signal("INT");
    assert_eq!(running.wait(), Some(130));
}

/// Starts a run, sends it a signal once `file` in its folder holds `text`, and gives its exit code.
fn ended_once(place: &Place, words: &str, signal: &str, file: &str, text: &str) -> Option<i32> {
    let mut child = place.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let path = place.path(file);
    while !fs::read_to_string(&path).is_ok_and(|found| found.contains(text)) {
        assert!(child.try_wait().unwrap().is_none() && begun.elapsed().as_secs() < 60, "{text} never came");
        sleep(Duration::from_millis(1));
    }
    let kill = format!("kill -{signal} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    child.wait().unwrap().code()
}

#[test]
fn a_run_that_is_ended_while_it_tries_out_micro_batches_tries_them_out_again() {
    let place = Place::new();
    let large = "--set model.n_embd=128 --set model.block_size=64 --set train.batch=128 --set train.steps=1 \
                 --set eval.every=null";
    place.train("free", large);
    let line = place.summary("free")["peak_allocated_bytes"].as_u64().unwrap() / 2;
    place.train("whole", &format!("{large} --limit {line}"));
    for turn in 0.. {
        assert!(turn < 10, "no signal came in time");
        let out = format!("run-{turn}");
        let words = format!("train tiny.yaml --device cpu --out {out} {large} --limit {line}");
        let code = ended_once(&place, &words, "TERM", &format!("{out}/events.jsonl"), "\"probed\"");
        let was_sized = place.text(&format!("{out}/events.jsonl")).contains("\"sized\"");
        place.resume(&out, "");
        assert_eq!(place.hash(&out), place.hash("whole"));
        assert_eq!(place.summary(&out)["oom_errors"], 0);
        if code == Some(130) && !was_sized {
            return;
        }
    }
}

#[test]
fn an_evaluation_that_is_cut_is_made_when_the_run_goes_on() {
    let place = Place::new();
    let settings = "--set train.steps=4 --set eval.every=2 --set eval.batches=200";
    place.train("whole", settings);
    let losses = |out: &str| {
        let loss = |event| if let Event::Evaluated { step, loss, .. } = event { Some((step, loss)) } else { None };
        place.events(out).into_iter().filter_map(loss).collect::<Vec<_>>()
    };
    for (out, step) in [("middle", 2), ("end", 4)] {
        let words = format!("train tiny.yaml --device cpu --out {out} {settings}");
        let last_step = format!("\"step\":{step},");
        let code = ended_once(&place, &words, "INT", &format!("{out}/schedule.jsonl"), &last_step);
        assert_eq!(code, Some(130), "{out}");
        assert_eq!(place.summary(out)["stopped"], "interrupted");
        place.resume(out, "");
        assert_eq!(losses(out), losses("whole"), "{out}");
        assert_eq!(place.summary(out)["eval_loss"], place.summary("whole")["eval_loss"]);
        assert_eq!(place.hash(out), place.hash("whole"));
    }
}
