//! Bad input: one clear message, exit code 2, and nothing written.

use std::fs;

use insta::assert_snapshot;

use crate::kit::{Place, TINY};

/// What `lowtide train` with these words prints when it refuses.
#[track_caller]
fn refusal(words: &str) -> String {
    refusal_in(&Place::new(), words)
}

#[track_caller]
fn refusal_in(place: &Place, words: &str) -> String {
    let before = place.names("");
    let ran = place.ends(2, &format!("train {words}"));
    assert_eq!(ran.stdout, "");
    assert_eq!(place.names(""), before, "something was written");
    ran.stderr
}

#[test]
fn a_misspelt_key() {
    let place = Place::new();
    fs::write(place.path("tiny.yaml"), TINY.replace("  steps: 4", "  stepz: 4")).unwrap();
    assert_snapshot!(refusal_in(&place, "tiny.yaml"), @r"
    error: tiny.yaml:9: unknown key `train.stepz`
    hint: did you mean `train.steps`?
    ");
    assert_snapshot!(refusal("tiny.yaml --set model.n_layers=2"), @r"
    error: --set model.n_layers=2: unknown key `model.n_layers`
    hint: did you mean `model.n_layer`?
    ");
    assert_snapshot!(refusal("tiny.yaml --set trian.steps=2"), @r"
    error: --set trian.steps=2: unknown key `trian`
    hint: did you mean `train`?
    ");
}

#[test]
fn a_line_smaller_than_the_parameters() {
    assert_snapshot!(refusal("tiny.yaml --device cpu --limit 100KiB"), @r"
    error: the model and its optimizer need 422.00 KiB before the first sample, and the memory limit is 100.00 KiB
    hint: set --limit well above 422.00 KiB, or choose a smaller model
    ");
    assert_snapshot!(refusal("tiny.yaml --device cpu --set memory.limit=100KiB --out new/run"), @r"
    error: the model and its optimizer need 422.00 KiB before the first sample, and the memory limit is 100.00 KiB
    hint: set --limit well above 422.00 KiB, or choose a smaller model
    ");
}

#[test]
fn a_line_that_does_not_parse() {
    assert_snapshot!(refusal("tiny.yaml --limit 3.5GiBB"), @r"
    error: invalid value '3.5GiBB' for '--limit <SIZE>': `3.5GiBB` is not a memory limit: write a size such as 3.5GiB, a percentage such as 90%, or none

    For more information, try '--help'.
    ");
    assert_snapshot!(refusal("tiny.yaml --host-limit 0"), @r"
    error: invalid value '0' for '--host-limit <SIZE>': a memory limit of 0 bytes leaves room for nothing: write a larger one, or none

    For more information, try '--help'.
    ");
    assert_snapshot!(refusal("tiny.yaml --set memory.limit=3.5GiBB"), @"error: --set memory.limit=3.5GiBB: memory.limit: `3.5GiBB` is not a memory limit: write a size such as 3.5GiB, a percentage such as 90%, or none");
}

#[test]
fn a_device_that_is_not_there() {
    assert_snapshot!(refusal("tiny.yaml --device gpu"), @r"
    error: invalid value 'gpu' for '--device <DEVICE>': `gpu` is not a device: use auto, cpu, cuda or cuda:N

    For more information, try '--help'.
    ");
    assert_snapshot!(refusal("tiny.yaml --device cuda:x"), @r"
    error: invalid value 'cuda:x' for '--device <DEVICE>': `cuda:x` is not a device: use auto, cpu, cuda or cuda:N

    For more information, try '--help'.
    ");
    // The words differ between a machine without a driver and one without a card.
    let place = Place::new();
    for device in ["cuda", "cuda:7"] {
        let mut command = place.command(&format!("train tiny.yaml --device {device}"));
        let output = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("error: there is no CUDA device"), "{text}");
        assert!(text.ends_with("\nhint: use --device cpu, or auto to take what is there\n"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(place.names(""), ["tiny.yaml".to_owned()].into());
    }
}

#[test]
fn an_output_folder_that_cannot_be_used() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    fs::create_dir(place.path("full")).unwrap();
    fs::write(place.path("full/letter"), "").unwrap();
    assert_snapshot!(refusal_in(&place, "tiny.yaml --out file"), @r"
    error: file: this is a file, and the run needs a folder
    hint: name another folder with --out
    ");
    assert_snapshot!(refusal_in(&place, "tiny.yaml --out file/run"), @r"
    error: file/run: the folder cannot be written to: a file is in the way
    hint: name another folder with --out
    ");
    assert_snapshot!(refusal_in(&place, "tiny.yaml --out full"), @r"
    error: full: this folder is not empty and holds no run
    hint: name another folder with --out
    ");
    // Nobody can make a folder there, not even root.
    assert_snapshot!(refusal_in(&place, "tiny.yaml --out /proc/lowtide"), @r"
    error: /proc/lowtide: the folder cannot be written to: no folder can be made there
    hint: name another folder with --out
    ");
    assert_eq!(place.names("full"), ["letter".to_owned()].into());
}

#[test]
fn a_folder_that_holds_a_run() {
    let place = Place::new();
    place.train("out", "--set train.steps=1");
    assert_snapshot!(refusal_in(&place, "tiny.yaml --out out"), @r"
    error: out: a run is already there
    hint: use --resume --out out to resume it, or another --out
    ");
}

#[test]
fn a_configuration_that_is_not_there() {
    let place = Place::new();
    fs::create_dir(place.path("folder")).unwrap();
    assert_snapshot!(refusal_in(&place, "tyni.yaml"), @"error: tyni.yaml: there is no such file");
    assert_snapshot!(refusal_in(&place, "folder"), @"error: folder: this is a directory, not a settings file");
    assert_snapshot!(refusal_in(&place, ".."), @"error: ..: this is a directory, not a settings file");
    assert_snapshot!(refusal_in(&place, ""), @r"
    error: the following required arguments were not provided:
      <CONFIG>

    Usage: lowtide train <CONFIG>

    For more information, try '--help'.
    ");
    assert_snapshot!(refusal_in(&place, "--resume"), @r"
    error: runs: there is no run to resume
    hint: name the folder of a run with --out, or leave --resume out to start a new one
    ");
}

#[test]
fn an_unknown_workload() {
    assert_snapshot!(refusal("tiny.yaml --set workload=gtp"), @"error: --set workload=gtp: workload: there is no workload `gtp`: use one of deblur, gpt, qca, scoring");
}

#[test]
fn an_override_that_is_none() {
    assert_snapshot!(refusal("tiny.yaml --set train.steps"), @r"
    error: --set train.steps: there is no `=` and no value
    hint: write --set train.steps=VALUE
    ");
    assert_snapshot!(refusal("tiny.yaml --set train.steps=many"), @r#"error: --set train.steps=many: train.steps: expected a whole number, got "many""#);
    assert_snapshot!(refusal("tiny.yaml --set train.steps=0"), @"error: --set train.steps=0: train.steps: expected a whole number of 1 or more, got 0");
    assert_snapshot!(refusal("tiny.yaml --set model.n_head=5"), @"error: --set model.n_head=5: model.n_head: 5 heads do not divide a width of 32");
}

#[test]
fn a_batch_that_is_no_batch() {
    assert_snapshot!(refusal("tiny.yaml --set train.micro_batch=9"), @"error: --set train.micro_batch=9: train.micro_batch: expected auto or a whole number from 1 to train.batch (8), got 9");
}

#[test]
fn files_of_tokens() {
    let place = Place::new();
    let tokens: Vec<u8> = (0..400u16).map(|number| number % 30).flat_map(u16::to_le_bytes).collect();
    fs::write(place.path("good.bin"), &tokens).unwrap();
    place.ends(0, "train tiny.yaml --out good --set data.source=tokens --set data.train=good.bin");

    fs::write(place.path("odd.bin"), &tokens[1..]).unwrap();
    fs::write(place.path("short.bin"), &tokens[..4]).unwrap();
    let refused = |words: &str| refusal_in(&place, &format!("tiny.yaml --out bad --set data.source=tokens {words}"));
    assert_snapshot!(refused(""), @"error: --set data.source=tokens: data.train: the source `tokens` needs a file of tokens to train on");
    assert_snapshot!(refused("--set data.train=none.bin"), @"error: --set data.train=none.bin: data.train: none.bin: No such file or directory (os error 2)");
    assert_snapshot!(refused("--set data.train=odd.bin"), @"error: --set data.train=odd.bin: data.train: odd.bin: 799 bytes are no whole number of 2-byte tokens");
    assert!(refused("--set data.train=short.bin").contains("2 tokens are fewer than a sample's"));
}

/// Found while training: the run ends with the message, and what was trained before stays.
#[test]
fn a_token_outside_the_vocabulary() {
    let place = Place::new();
    let tokens: Vec<u8> = (0..400u16).map(|_| 60_000).flat_map(u16::to_le_bytes).collect();
    fs::write(place.path("wild.bin"), &tokens).unwrap();
    let ran = place.ends(2, "train tiny.yaml --out wild --set data.source=tokens --set data.train=wild.bin");
    assert!(ran.stderr.contains("wild.bin: token 60000 at position"), "{}", ran.stderr);
    assert!(ran.stderr.contains("is outside the vocabulary of"), "{}", ran.stderr);
}
