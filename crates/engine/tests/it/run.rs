//! A run from start to end.

use std::collections::BTreeSet;
use std::fs;

use insta::assert_snapshot;
use lowtide_core::{Event, Record};
use lowtide_settings::RunSettings;
use serde_json::Value;

use crate::kit::{Place, settled};

#[test]
fn a_short_run_says_what_it_does() {
    let place = Place::new();
    let ran = place.train("out", "");
    assert_eq!(ran.stdout, "");
    assert_snapshot!(settled(&ran.stderr), @r"
    training gpt on the CPU (SIZE in all, SIZE free)
    27,008 parameters, 8 samples a step, no memory limit
    writing to out
    [step 1] loss #  # tokens/s  memory SIZE
    [step 2] loss #  # tokens/s  memory SIZE
    [step 3] loss #  # tokens/s  memory SIZE
    [step 4] loss #  # tokens/s  memory SIZE
    [step 4] evaluation: loss #
    [step 4] memory: device SIZE, reserved #, host SIZE
    finished
      steps         4 (32 samples, none lost)
      loss          # (the least possible is #, so # % above it)
      speed         # tokens/s
      memory        peak SIZE (no limit)
      time          # s
    everything about this run is in out
    ");
}

/// Trains in well under a second.
const TINY_QCA: &str = "\
workload: qca
model: {d_state: 1, hidden_channels: 2, grid_size: 8, qca_steps: 2, segment_steps: 1}
train: {steps: 2, batch: 2}
eval: {every: 1, batches: 2}
";

#[test]
fn a_run_with_metrics_names_them() {
    let place = Place::new();
    fs::write(place.path("qca.yaml"), TINY_QCA).unwrap();
    let ran = place.ends(0, "train qca.yaml --device cpu --out out");
    assert_snapshot!(settled(&ran.stderr), @r"
    training qca on the CPU (SIZE in all, SIZE free)
    6,886 parameters, 2 samples a step, no memory limit
    writing to out
    [step 1] loss #  # samples/s  memory SIZE
    [step 1] evaluation: loss #, survival #, symmetry #, activity #
    [step 1] memory: device SIZE, reserved #, host SIZE
    [step 2] loss #  # samples/s  memory SIZE
    [step 2] evaluation: loss #, survival #, symmetry #, activity #
    [step 2] memory: device SIZE, reserved #, host SIZE
    finished
      steps         2 (4 samples, none lost)
      loss          #
      evaluation    survival #, symmetry #, activity #
      speed         # samples/s
      memory        peak SIZE (no limit)
      time          # s
    everything about this run is in out
    ");
    let summary = place.summary("out");
    let metrics = summary["metrics"].as_object().unwrap();
    assert_eq!(
        metrics.keys().collect::<BTreeSet<_>>(),
        ["activity", "survival", "symmetry"].map(String::from).iter().collect()
    );
    let sum: f64 = metrics.values().map(|value| value.as_f64().unwrap()).sum();
    assert!((sum - summary["eval_loss"].as_f64().unwrap()).abs() < 1e-5, "{summary}");
    let Some(Event::Evaluated { metrics: told, .. }) =
        place.events("out").into_iter().rfind(|event| matches!(event, Event::Evaluated { .. }))
    else {
        panic!("it was evaluated")
    };
    assert_eq!(serde_json::to_value(told).unwrap(), summary["metrics"]);
}

#[test]
fn the_run_folder_is_complete() {
    let place = Place::new();
    place.train("out", "");
    let expect = ["checkpoints", "config.yaml", "events.jsonl", "schedule.jsonl", "summary.json", "tensorboard"];
    assert_eq!(place.names("out"), expect.map(String::from).into());
    assert_eq!(place.names("out/checkpoints"), ["00000000", "00000004", "best"].map(String::from).into());
    let expect = ["model.safetensors", "state.json", "training.safetensors"];
    assert_eq!(place.names("out/checkpoints/00000004"), expect.map(String::from).into());

    let (path, text) = (place.path("out/config.yaml"), place.text("out/config.yaml"));
    let loaded = RunSettings::load(Some((&path, &text)), &[]).unwrap();
    assert_eq!((loaded.settings.train.steps, loaded.settings.train.batch), (4, 8));

    let events = place.events("out");
    assert!(matches!(events.first(), Some(Event::RunStarted { .. })));
    assert!(matches!(events.last(), Some(Event::Stopped { .. })));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::StepDone { .. })).count(), 4);

    let schedule = place.text("out/schedule.jsonl");
    let steps: Vec<u64> =
        schedule.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3, 4]);
}

#[test]
fn every_file_of_a_run_is_in_the_reference() {
    const PAGE: &str = include_str!("../../../../docs/reference/files.md");
    let place = Place::new();
    place.train("out", "");
    let newest = place.names("out/checkpoints").into_iter().rfind(|name| name.parse::<u64>().is_ok());
    let (top, checkpoint) = (place.names("out"), place.names(&format!("out/checkpoints/{}", newest.unwrap())));
    assert!(top.len() > 4 && checkpoint.len() > 2, "{top:?} {checkpoint:?}");
    for name in top.iter().chain(&checkpoint) {
        assert!(PAGE.contains(&format!("`{name}")), "docs/reference/files.md has no {name}");
    }
}

#[test]
fn the_summary_has_its_keys() {
    let place = Place::new();
    place.train("out", "--limit 1GiB");
    let summary = place.summary("out");
    let keys: BTreeSet<&str> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    let expect = [
        "cache",
        "device",
        "effective_batch",
        "eval",
        "eval_loss",
        "final_loss",
        "host_line_bytes",
        "idle_after_eval_bytes",
        "line_bytes",
        "loss_floor",
        "metrics",
        "metrics_missing",
        "micro_batch_final",
        "oom_errors",
        "oom_recovered",
        "parameters",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "peak_rss_bytes",
        "precision",
        "samples_lost",
        "samples_per_second",
        "samples_seen",
        "schema",
        "skipped_steps",
        "steps",
        "stopped",
        "stopped_early_at",
        "targets_per_second",
        "tokens_per_second",
        "wall_seconds",
        "weights_sha256",
        "workload",
    ];
    assert_eq!(keys, expect.into());
    let figure = |key: &str| summary[key].as_u64().unwrap();
    assert_eq!((figure("steps"), figure("samples_seen"), figure("samples_lost")), (4, 32, 0));
    assert_eq!(figure("line_bytes"), 1 << 30);
    assert!(figure("peak_allocated_bytes") > 16 * figure("parameters"));
    assert_eq!(summary["stopped"], "finished");
    assert_eq!(summary["metrics"], serde_json::json!({}));
}

#[test]
fn json_is_all_that_is_printed() {
    let place = Place::new();
    let ran = place.train("out", "--json");
    assert_eq!(ran.stderr, "");
    let (last, events) = {
        let mut lines: Vec<&str> = ran.stdout.lines().collect();
        (lines.pop().unwrap(), lines)
    };
    // What is written has a checksum besides, for whoever reads it later.
    let text = place.text("out/events.jsonl");
    let written = text.lines().map(|line| format!("{}}}", line.rsplit_once(",\"crc32c\":").unwrap().0));
    assert_eq!(events, written.collect::<Vec<_>>());
    for line in events {
        serde_json::from_str::<Record>(line).unwrap();
    }
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["event"], &last["schema"], &last["folder"]), (&"summary".into(), &1.into(), &"out".into()));
    assert_eq!(last["summary"], place.summary("out"));
}

#[test]
fn a_run_without_a_name_gets_the_next_number() {
    let place = Place::new();
    for number in 1..=2 {
        place.ends(0, "train tiny.yaml --device cpu --set train.steps=1");
        assert!(place.path(&format!("runs/tiny-{number}/summary.json")).is_file());
    }
    // The newest is the one that goes on.
    place.ends(0, "train tiny.yaml --device cpu --set train.steps=2 --resume");
    assert_eq!(place.summary("runs/tiny-1")["steps"], 1);
    assert_eq!(place.summary("runs/tiny-2")["steps"], 2);
}

#[test]
fn the_same_seed_gives_the_same_weights() {
    let place = Place::new();
    place.train("a", "");
    place.train("b", "");
    place.train("c", "--set seed=2");
    assert_eq!(place.hash("a"), place.hash("b"));
    assert_ne!(place.hash("a"), place.hash("c"));
}

#[test]
fn a_long_run_without_a_terminal_prints_about_ten_lines() {
    let place = Place::new();
    let ran = place.train("out", "--set train.steps=45 --set model.n_layer=1 --set eval.every=null");
    let steps = ran.stderr.lines().filter(|line| line.starts_with("[step")).count();
    assert_eq!(steps, 9);
}

#[test]
fn a_loss_that_is_no_number_is_told_once_and_the_run_goes_on() {
    let place = Place::new();
    let diverge = "--set optimizer.learning_rate=1e30 --set optimizer.clip=null --set eval.every=null";
    let ran = place.train("out", diverge);
    assert_snapshot!(settled(&ran.stderr), @r"
    training gpt on the CPU (SIZE in all, SIZE free)
    27,008 parameters, 8 samples a step, no memory limit
    writing to out
    [step 1] loss #  # tokens/s  memory SIZE
    [step 2] loss NaN  # tokens/s  memory SIZE
    [step 2] WARNING: the loss is NaN, not a finite number; training goes on
    hint: a lower optimizer.learning_rate, a longer optimizer.warmup_steps or train.precision=fp32 may help
    [step 3] loss NaN  # tokens/s  memory SIZE
    [step 4] loss NaN  # tokens/s  memory SIZE
    finished
      steps         4 (32 samples, none lost)
      loss          not a finite number
      speed         # tokens/s
      memory        peak SIZE (no limit)
      time          # s
    everything about this run is in out
    ");
    assert_eq!(place.summary("out")["final_loss"], Value::Null);
    let ran = place.resume("out", "--set train.steps=5");
    assert!(ran.stderr.contains("WARNING: the loss is NaN"), "{}", ran.stderr);
}
