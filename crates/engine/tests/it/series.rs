//! A configuration that is several runs.

use std::fs;

use insta::assert_snapshot;
use lowtide_core::Event;
use serde_json::{Value, json};

use crate::kit::{Place, settled};

const MODELS: [&str; 3] = ["lstm", "gnn_det", "gvae"];

/// Three small models that train in well under a second each.
const SERIES: &str = "\
workload: scoring
model:
  lstm_hidden: 8
  graph_hidden: 8
  head_hidden: 8
  dropout: 0.1
data:
  count: 60
train:
  steps: 6
  batch: 4
optimizer:
  learning_rate: 0.01
  min_learning_rate: 0.01
  warmup_steps: 0
eval:
  every: 3
  batches: 2
save:
  every: 3
";

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("series.yaml"), SERIES).unwrap();
    place
}

fn train(out: &str) -> String {
    format!("train series.yaml --device cpu --out {out}")
}

fn hashes(place: &Place, out: &str) -> Vec<Value> {
    let summary = place.summary(out);
    MODELS.iter().map(|model| summary["models"][model]["weights_sha256"].clone()).collect()
}

#[test]
fn three_models_are_trained_and_compared() {
    let place = place();
    let ran = place.ends(0, &train("out"));
    let table: Vec<&str> = ran.stderr.lines().rev().take(5).collect();
    let table: Vec<String> = table.into_iter().rev().map(|line| settled(&squeezed(line))).collect();
    assert_snapshot!(table.join("\n"), @r"
    model mae rmse r2 spearman steps seconds
    lstm # # # # 6 #
    gnn_det # # # # 6 #
    gvae # # # # 6 #
    everything about these runs is in out
    ");
    let summary = place.summary("out");
    assert_eq!((&summary["stopped"], &summary["workload"]), (&json!("finished"), &json!("scoring")));
    assert_eq!((&summary["steps"], &summary["samples_seen"]), (&json!(18), &json!(72)), "sums over the runs");
    assert_eq!(summary["weights_sha256"], summary["models"]["gvae"]["weights_sha256"], "the last one's");
    for model in MODELS {
        let folder = format!("out/{model}");
        assert_eq!(summary["models"][model]["weights_sha256"], place.summary(&folder)["weights_sha256"]);
        assert_eq!(summary["models"][model]["metrics"], place.summary(&folder)["metrics"]);
        assert!(place.names(&folder).contains("checkpoints"), "{folder} is a whole run");
        // A model is the same in company and alone.
        place.ends(0, &format!("{} --set model.run=[{model}]", train(&format!("alone-{model}"))));
        assert_eq!(place.hash(&format!("alone-{model}")), place.hash(&folder));
    }
}

/// Each stretch of blanks as one.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_interrupted_series_goes_on_with_the_run_under_way() {
    let place = place();
    let long = "--set train.steps=300 --set save.every=null --set eval.every=null";
    place.ends(0, &format!("{} {long}", train("whole")));
    let mut running = place.start(&format!("{} --json {long}", train("out")));
    let is_second =
        |event: &Event| matches!(event, Event::RunStarted { workload, .. } if workload == "scoring/gnn_det");
    running.wait_for(is_second);
    running.wait_for(|event| matches!(event, Event::StepDone { .. }));
    running.signal("INT");
    assert_eq!(running.wait(), Some(130));
    let summary = place.summary("out");
    assert_eq!(summary["stopped"], "interrupted");
    assert_eq!((&summary["models"]["lstm"]["stopped"], &summary["models"]["gvae"]), (&json!("finished"), &Value::Null));
    assert!(!place.path("out/gvae").exists());

    let before = place.text("out/lstm/events.jsonl");
    let ran = place.resume("out", "");
    assert!(ran.stderr.starts_with("lstm: run 1 of 3, finished before\ngnn_det: run 2 of 3\n"), "{}", ran.stderr);
    assert_eq!(place.text("out/lstm/events.jsonl"), before);
    assert_eq!(hashes(&place, "out"), hashes(&place, "whole"));

    // Nothing is left to do.
    let ran = place.resume("out", "");
    assert!(!ran.stderr.contains("[step"), "{}", ran.stderr);
    assert_eq!(hashes(&place, "out"), hashes(&place, "whole"));
}

#[test]
fn a_run_of_a_series_can_be_resumed_alone_and_all_of_them_with_more_steps() {
    let place = place();
    place.ends(0, &format!("{} --set train.steps=9", train("whole")));
    place.ends(0, &train("out"));
    place.resume("out/gnn_det", "--set train.steps=9");
    assert_eq!(place.hash("out/gnn_det"), place.hash("whole/gnn_det"));
    let ran = place.resume("out", "--set train.steps=9");
    assert!(ran.stderr.contains("gnn_det: run 2 of 3, finished before"), "{}", ran.stderr);
    assert_eq!(hashes(&place, "out"), hashes(&place, "whole"));
    // One of them, named.
    place.resume("out", "--set train.steps=12 --set model.run=[gvae]");
    assert_eq!(place.summary("out/gvae")["steps"], 12);
    assert_eq!(place.summary("out/lstm")["steps"], 9);
}

#[test]
fn a_run_that_fails_does_not_lose_the_others() {
    let place = place();
    let wide = "--set model.graph_hidden=512";
    let ran = place.ends(3, &format!("{} {wide} --limit 2MiB", train("out")));
    let error = "the model and its optimizer need";
    assert!(ran.stderr.contains(&format!("error: {error}")), "{}", ran.stderr);
    let summary = place.summary("out");
    assert_eq!((&summary["models"]["lstm"]["stopped"], &summary["stopped"]), (&json!("finished"), &json!("error")));
    assert!(summary["models"]["gnn_det"]["error"].as_str().unwrap().starts_with(error), "{summary}");
    let row = ran.stderr.lines().find(|line| line.trim_start().starts_with("gnn_det  error:"));
    assert!(row.is_some(), "it stands in the table: {}", ran.stderr);

    let ran = place.resume("out", "--limit none");
    assert!(ran.stderr.contains("lstm: run 1 of 3, finished before"), "{}", ran.stderr);
    place.ends(0, &format!("{} {wide}", train("whole")));
    assert_eq!(hashes(&place, "out"), hashes(&place, "whole"));
}

#[test]
fn wrong_input_leaves_nothing_behind() {
    let place = place();
    for (words, expect) in [
        (
            "--set model.run=[lstm,gru]",
            "error: --set model.run=[lstm,gru]: model.run[1]: expected one of lstm, gnn_det, gvae",
        ),
        ("--set model.run=[lstm,lstm]", "error: --set model.run=[lstm,lstm]: model.run: `lstm` is named twice"),
        ("--set data.count=1", "both must have some"),
        ("--schedule-from nowhere", "error: nowhere/lstm/schedule.jsonl: there is no schedule to follow"),
    ] {
        let ran = place.ends(2, &format!("{} {words}", train("out")));
        assert!(ran.stderr.contains(expect), "{words}: {}", ran.stderr);
        assert!(!place.path("out").exists(), "{words}");
    }
    place.ends(0, &format!("{} --set model.run=[lstm]", train("out")));
    let ran = place.ends(2, "train --resume --device cpu --out out --set model.run=[lstm,gvae]");
    assert!(ran.stderr.contains("there is one run in this folder"), "{}", ran.stderr);
}

#[test]
fn a_series_follows_another() {
    let place = place();
    place.ends(0, &format!("{} --inject-oom step=2,phase=forward,times=2", train("split")));
    assert_eq!(place.summary("split")["oom_recovered"], 6, "twice in each run");
    place.ends(0, &format!("{} --schedule-from split", train("again")));
    assert_eq!(hashes(&place, "again"), hashes(&place, "split"));
}
