//! `--resume`.

use std::fs;

use insta::assert_snapshot;

use crate::kit::Place;

#[track_caller]
fn check_exact(words: &str) {
    let place = Place::new();
    place.train("whole", words);
    place.train("parts", &format!("{words} --set train.steps=2"));
    place.resume("parts", "--set train.steps=4");
    assert_eq!(place.hash("parts"), place.hash("whole"));
    let summary = place.summary("parts");
    assert_eq!(
        (&summary["steps"], &summary["samples_seen"], &summary["samples_lost"]),
        (&4.into(), &32.into(), &0.into())
    );
    assert_eq!(summary["final_loss"], place.summary("whole")["final_loss"]);
}

#[test]
fn a_resumed_run_ends_with_the_same_bits() {
    check_exact("");
}

#[test]
fn in_bf16_too() {
    check_exact("--set train.precision=bf16");
}

#[test]
fn in_fp16_with_its_loss_scale_too() {
    check_exact("--set train.precision=fp16");
}

#[test]
fn under_a_line_what_was_learned_is_remembered() {
    let place = Place::new();
    place.train("free", "");
    let line = format!("--limit {}", place.summary("free")["peak_allocated_bytes"].as_u64().unwrap() * 3 / 4);
    place.train("whole", &line);
    place.train("parts", &format!("{line} --set train.steps=2"));
    let errors = place.summary("parts")["oom_errors"].clone();
    place.resume("parts", "--set train.steps=4");
    assert_eq!(place.hash("parts"), place.hash("whole"));
    assert_eq!(place.summary("parts")["oom_errors"], errors, "nothing is found out twice");
}

#[test]
fn a_finished_run_stays_as_it_is() {
    // With an evaluation for the end alone, and with one that was due after the last step anyway.
    for words in ["", "--set eval.every=2"] {
        let place = Place::new();
        place.train("out", words);
        let before = place.summary("out");
        place.resume("out", "");
        let after = place.summary("out");
        for key in ["steps", "weights_sha256", "peak_allocated_bytes", "final_loss", "eval_loss", "metrics"] {
            assert_eq!(after[key], before[key], "{key}");
        }
    }
}

#[test]
fn an_empty_folder_holds_no_run() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    let ran = place.ends(2, "train --resume --out empty");
    assert_snapshot!(ran.stderr, @r"
    error: empty: there is no run to resume
    hint: name the folder of a run with --out, or leave --resume out to start a new one
    ");
    assert!(place.names("empty").is_empty());
}

#[test]
fn another_model_is_refused_and_nothing_changes() {
    let place = Place::new();
    place.train("out", "");
    let before = [place.text("out/config.yaml"), place.text("out/events.jsonl"), place.text("out/summary.json")];
    for (change, part) in [("n_embd=64", "is F32"), ("n_layer=3", "does not hold"), ("n_layer=1", "it holds")] {
        let ran = place.ends(2, &format!("train --resume --device cpu --out out --set model.{change}"));
        assert!(ran.stderr.contains("it is of another model: ") && ran.stderr.contains(part), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
    }
    let after = [place.text("out/config.yaml"), place.text("out/events.jsonl"), place.text("out/summary.json")];
    assert_eq!(before, after);
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_can_be_used() {
    let place = Place::new();
    place.train("out", "--set save.every=2 --set save.keep=5");
    let model = place.path("out/checkpoints/00000004/model.safetensors");
    let bytes = fs::read(&model).unwrap();
    fs::write(&model, &bytes[..bytes.len() - 1]).unwrap();
    let ran = place.ends(2, "train --resume --device cpu --out out");
    let settled = ran.stderr.replace(&bytes.len().to_string(), "N").replace(&(bytes.len() - 1).to_string(), "N-1");
    assert_snapshot!(settled, @r"
    error: out/checkpoints/00000004/model.safetensors: it is N-1 bytes long, and N were written
    hint: the checkpoint of step 2, before it, is whole: lowtide train --resume --out out --checkpoint 2
    ");
    let whole = place.hash("out");
    let ran = place.ends(0, "train --resume --out out --checkpoint 2 --device cpu");
    let note = "[step 2] note: checkpoints after step 2 were renamed to checkpoints/STEP.aside, since their steps are made \
                again: delete them when they are not wanted";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(place.hash("out"), whole);
    assert_eq!(place.text("out/schedule.jsonl").lines().count(), 4, "steps made again are not listed twice");
    assert_eq!(
        place.names("out/checkpoints"),
        ["00000000", "00000002", "00000004", "00000004.aside", "best"].map(String::from).into()
    );
    // It goes on from the new one, whatever the old one is.
    place.resume("out", "--set train.steps=5");
}

#[test]
fn a_flipped_bit_is_found_by_an_evaluation_too() {
    let place = Place::new();
    place.train("out", "--set save.every=2 --set save.keep=5");
    let model = place.path("out/checkpoints/00000004/model.safetensors");
    let mut bytes = fs::read(&model).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 16;
    fs::write(&model, &bytes).unwrap();
    let ran = place.ends(2, "eval out --device cpu");
    assert!(
        ran.stderr.contains("model.safetensors: it was changed after it was written: its checksum is"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.ends_with("hint: the checkpoint of step 2, before it, is whole: lowtide eval out --checkpoint 2\n"),
        "{}",
        ran.stderr
    );
    place.ends(0, "eval out --checkpoint 2 --device cpu");
}

#[test]
fn damaged_events_are_told_and_the_run_goes_on() {
    let place = Place::new();
    place.train("out", "");
    let before = place.hash("out");
    let events = place.path("out/events.jsonl");
    let text = place.text("out/events.jsonl");
    for (from, to) in [("\"loss\":3", "\"loss\":1"), ("\"crc32c\"", "\"crc32d\""), ("}\n{", "}\u{b}{")] {
        fs::write(&events, text.replacen(from, to, 1)).unwrap();
        let ran = place.resume("out", "");
        assert!(ran.stderr.contains("of events.jsonl is damaged"), "{from}: {}", ran.stderr);
        assert_eq!(place.hash("out"), before);
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    fs::write(&events, lines[..2].concat()).unwrap();
    let ran = place.resume("out", "");
    assert!(ran.stderr.contains("were there after step 4: events are missing"), "{}", ran.stderr);
}

#[test]
fn events_that_are_no_file_are_refused_at_once() {
    let place = Place::new();
    place.train("out", "");
    let events = place.path("out/events.jsonl");
    fs::remove_file(&events).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&events).status().unwrap().success());
    let ran = place.ends(2, "train --resume --device cpu --out out");
    let error = "error: out/events.jsonl: this is a pipe, a socket or a device, and not a file\n";
    assert!(ran.stderr.starts_with(error), "{}", ran.stderr);
}

#[test]
fn what_a_kill_left_half_written_is_removed() {
    let place = Place::new();
    place.train("out", "");
    fs::create_dir(place.path("out/checkpoints/.00000099.partial")).unwrap();
    fs::write(place.path("out/checkpoints/.00000099.partial/model.safetensors"), "half").unwrap();
    place.resume("out", "--set train.steps=5");
    assert_eq!(place.names("out/checkpoints"), ["00000004", "00000005", "best"].map(String::from).into());
}
