//! `--profile`.

use serde_json::Value;

use crate::kit::Place;

fn parts(profile: &Value) -> Vec<(&str, f64)> {
    profile["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| (part["name"].as_str().unwrap(), part["ms"].as_f64().unwrap()))
        .collect()
}

#[test]
fn a_profiled_run_says_where_its_time_went_and_has_its_own_bits() {
    let place = Place::new();
    let steps = "--set train.steps=8";
    place.train("plain", steps);
    let printed = place.train("out", &format!("{steps} --profile 3"));
    assert_eq!(place.hash("out"), place.hash("plain"));
    let summary = place.summary("out");
    let profile = &summary["profile"];
    assert_eq!(profile["steps"], 3);
    let parts = parts(profile);
    for name in ["products", "attention", "loss_head", "update"] {
        assert!(parts.iter().any(|(part, ms)| *part == name && *ms > 0.0), "{name}: {parts:?}");
    }
    // Threads compute at once, so the parts may add up to more than the step, and never to less.
    let sum: f64 = parts.iter().map(|(_, ms)| ms).sum();
    assert!(sum >= 0.99 * profile["step_ms"].as_f64().unwrap(), "{parts:?}");
    let trace = std::fs::read_to_string(place.path("out/trace.json")).unwrap();
    let trace: Value = serde_json::from_str(&trace).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "aten::addmm"));
    assert!(printed.stderr.contains("on average over 3 steps (trace.json)"), "{}", printed.stderr);
    assert_eq!(place.summary("plain").get("profile"), None);
}

/// The first three are left out, so one is left of four.
#[test]
fn a_run_that_is_shorter_has_a_profile_of_fewer_steps() {
    let place = Place::new();
    place.train("out", "--set train.steps=4 --profile 10");
    assert_eq!(place.summary("out")["profile"]["steps"], 1);
    place.train("short", "--set train.steps=2 --profile 10");
    assert_eq!(place.summary("short").get("profile"), None);
}
