//! `lowtide eval`: a checkpoint evaluated apart from training.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::kit::{Place, settled};

/// Frames of 104 x 88 pixels; whole ones take several times the memory of the tiles.
const FRAMES: &str = "\
workload: deblur
model: {channels: 8, blocks: 1, heads: 2, window: 8}
data: {frames: 3, crop: 16, height: 88, width: 104}
train: {steps: 2, batch: 2}
eval: {every: 1, batches: 2, crop: null}
";

fn frames() -> Place {
    let place = Place::new();
    fs::write(place.path("frames.yaml"), FRAMES).unwrap();
    place.ends(0, "train frames.yaml --device cpu --out out");
    place
}

#[track_caller]
fn evaluated(place: &Place, words: &str) -> Value {
    let ran = place.ends(0, &format!("eval {words} --device cpu --json"));
    assert_eq!(ran.stderr, "");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Every file below a folder with its bytes.
fn contents(folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents(&path, found);
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
}

#[test]
fn it_finds_what_training_found_and_leaves_the_run_as_it_is() {
    let place = Place::new();
    place.train("out", "--set eval.every=2 --set save.every=2 --set save.keep=9");
    let mut before = BTreeMap::new();
    contents(&place.path("out"), &mut before);

    let summary = place.summary("out");
    let newest = evaluated(&place, "out");
    assert_eq!((&newest["step"], &newest["loss"]), (&summary["steps"], &summary["eval_loss"]));
    assert_eq!(newest["workload"], "gpt");
    let losses: BTreeMap<u64, f64> = [2, 4]
        .map(|step| (step, evaluated(&place, &format!("out --checkpoint {step}"))["loss"].as_f64().unwrap()))
        .into();
    assert_ne!(losses[&2], losses[&4]);
    let lowest = losses.iter().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    assert_eq!(evaluated(&place, "out --checkpoint best")["step"], *lowest.0);

    let mut after = BTreeMap::new();
    contents(&place.path("out"), &mut after);
    assert_eq!(before, after);
}

#[test]
fn a_person_reads_figures_and_how_they_came() {
    let place = frames();
    let ran = place.ends(0, "eval out --device cpu --set eval.tile=40");
    assert_snapshot!(settled(&ran.stderr), @"evaluating out/checkpoints/00000002");
    assert_snapshot!(settled(&ran.stdout), @r"
      step          2
      loss          #
      psnr          #
      ssim          #
      frames        whole, in tiles of 40 x 40 pixels
      memory        peak SIZE (no limit)
      time          # s
    ");
}

#[test]
fn tiles_fit_where_whole_frames_do_not() {
    let place = frames();
    let whole = evaluated(&place, "out");
    assert_eq!(whole["eval"]["mode"], "whole");
    let peak = whole["peak_bytes"].as_u64().unwrap();
    let line = format!("--limit {}B", peak / 3);

    let tiles = evaluated(&place, &format!("out {line} --set eval.tile=auto"));
    assert_eq!(tiles["eval"]["mode"], "tile");
    assert!(tiles["peak_bytes"].as_u64().unwrap() <= peak / 3, "{tiles}");
    let figure = |found: &Value| found["metrics"]["psnr"].as_f64().unwrap();
    assert!((figure(&tiles) - figure(&whole)).abs() < 1e-4, "{tiles} {whole}");

    let line = format!("--limit {}B", peak / 8);
    let ran = place.ends(3, &format!("eval out {line} --device cpu"));
    let last: Vec<&str> = ran.stderr.lines().rev().take(2).collect();
    assert_eq!(last[0], "hint: evaluate frames in tiles, --set eval.tile=auto, or raise --limit");
    assert!(last[1].starts_with("error: memory ran out in eval of step 2"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("training goes on"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[test]
fn a_series_is_evaluated_run_by_run() {
    let place = Place::new();
    let settings = "\
workload: scoring
model: {lstm_hidden: 8, graph_hidden: 8, head_hidden: 8, run: [lstm, gvae]}
data: {count: 60}
train: {steps: 2, batch: 4}
eval: {every: 2, batches: 2}
";
    fs::write(place.path("series.yaml"), settings).unwrap();
    place.ends(0, "train series.yaml --device cpu --out out");
    let ran = place.ends(0, "eval out --device cpu --json");
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let models = &place.summary("out")["models"];
    for (line, model) in lines.iter().zip(["gvae", "lstm"]) {
        assert_eq!(line["loss"], models[model]["eval_loss"], "{model}");
        assert_eq!(line["metrics"], models[model]["metrics"], "{model}");
    }
    assert_eq!(lines.len(), 2);
}

#[test]
fn bad_input_is_named() {
    let place = Place::new();
    place.train("out", "");
    fs::create_dir(place.path("empty")).unwrap();
    let said = |words: &str| place.ends(2, words).stderr;
    assert_snapshot!(said("eval empty"), @r"
    error: empty: there is no run in this folder
    hint: name the folder of a run, as `lowtide train` said it at its end
    ");
    assert_snapshot!(said("eval out --checkpoint 7"), @"error: out/checkpoints: there is no checkpoint after step 7, only after step 0, 4");
    assert_snapshot!(said("eval out --set model.n_embd=64 --device cpu"), @r"
    evaluating out/checkpoints/00000004
    error: out/checkpoints/00000004/model.safetensors: it is of another model: `transformer.h.0.attn.c_attn.bias` is F32 [96], and this model has F32 [192]
    hint: resume with the model that the run was started with, or start a new run in another folder
    ");
    assert_snapshot!(said("eval out --limit 10KiB --device cpu"), @r"
    evaluating out/checkpoints/00000004
    error: the weights take 105.50 KiB before the first sample, and the memory limit is 10.00 KiB
    hint: set --limit well above 105.50 KiB
    ");
    let typed = said("eval out --checkpoint last");
    assert!(typed.contains("expected newest, best or the number of a step"), "{typed}");
}
