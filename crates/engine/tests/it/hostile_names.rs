//! Names and texts that would steer a terminal, in every place where training takes or finds one.

use lowtide_testkit::{HOSTILE, Printout, check_plain};

use crate::kit::{Place, TINY};

/// All of them in one name: each start of the engine loads LibTorch, and one after another they stand in the tests of the
/// front program, which prints by the same function.
fn hostile() -> String {
    HOSTILE.concat()
}

/// Runs `lowtide` with these words, in which `NAME` stands for the hostile name, and looks at all that it prints.
#[track_caller]
fn check(place: &Place, text: &str, name: &str) -> Printout {
    let words = text.split_whitespace().map(|word| word.replace("NAME", name));
    let printout = Printout::of(place.command("").args(words).output().unwrap());
    check_plain(text, &printout);
    assert_ne!(printout.code, Some(101), "{text}: {}", printout.stderr);
    printout
}

#[test]
fn in_arguments() {
    let name = &hostile();
    let place = Place::new();
    for text in [
        "train NAME",
        "train --NAME",
        "train tiny.yaml --limit NAME",
        "train tiny.yaml --device NAME",
        "train tiny.yaml --set NAME",
        "train tiny.yaml --set NAME=1",
        "train tiny.yaml --set train.steps=NAME",
        "train tiny.yaml --set workload=NAME",
        "train tiny.yaml --out tiny.yaml/NAME",
        "train --resume --out NAME",
        "eval NAME",
        "eval NAME --checkpoint NAME",
        "generate NAME",
        "generate scoring NAME --NAME",
        "generate scoring tiny.yaml/NAME",
    ] {
        check(&place, text, name);
    }
}

#[test]
fn in_configurations() {
    let name = &hostile();
    let place = Place::new();
    let quoted = serde_json::to_string(name).unwrap();
    place.write("workload.yaml", TINY.replace("workload: gpt", &format!("workload: {quoted}")));
    place.write("value.yaml", TINY.replace("steps: 4", &format!("steps: {quoted}")));
    place.write("key.yaml", TINY.replace("steps: 4", &format!("{quoted}: 4")));
    place.write("group.yaml", format!("{TINY}{quoted}: 1\n"));
    place.write("broken.yaml", format!("workload: [{name}\n"));
    place.write("data.yaml", format!("workload: scoring\ndata:\n  folder: {quoted}\n  scores: {quoted}\n"));
    place.write(&format!("{name}.yaml"), "workload: [\n");
    for file in ["workload", "value", "key", "group", "broken", "data", "NAME"] {
        for json in ["", "--json"] {
            check(&place, &format!("train {file}.yaml --device cpu --out out {json}"), name);
        }
    }
}

#[test]
fn in_folders_of_runs() {
    let name = &hostile();
    let place = Place::new();
    for (text, code) in [
        ("train tiny.yaml --device cpu --set train.steps=1 --out NAME", 0),
        ("train --resume --device cpu --set train.steps=2 --out NAME", 0),
        ("train --resume --device cpu --set train.steps=3 --out NAME --json", 0),
        ("eval NAME --device cpu", 0),
        ("eval NAME --device cpu --json", 0),
        ("train tiny.yaml --device cpu --out NAME", 2),
    ] {
        let printout = check(&place, text, name);
        assert_eq!(printout.code, Some(code), "{text}: {}", printout.stderr);
    }
    let state = format!("{name}/checkpoints/00000003/state.json");
    assert!(place.path(&state).is_file(), "{state}");
    place.write(&state, format!("{{\"{}\"", name.escape_default()));
    check(&place, "eval NAME --device cpu", name);
    check(&place, "train --resume --device cpu --out NAME", name);
}
