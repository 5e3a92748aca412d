//! `lowtide run --reserve`: what comes into the command's Pythons, what is refused, and what is told at the end.

use super::kit::Place;

/// A package that uses a reserve as the real one does, without a card.
const PACKAGE: &str = r#"
import json, os
def begin(settings):
    os.makedirs(settings["folder"], exist_ok=True)
    for step, needed in enumerate((13, 18), 1):
        use = {"event": "overflowed", "step": step, "phase": "forward", "bytes": 1 << 30, "reserve": settings["bytes"],
               "seconds": 1.5, "needed": needed << 30, "limit": 12 << 30, "resting": 2 << 30}
        name = "start-%d-%d.jsonl" % (settings["start"], os.getpid())
        with open(os.path.join(settings["folder"], name), "a") as file:
            file.write(json.dumps(use) + "\n")
"#;

fn with_package(script: &str) -> Place {
    let place = Place::with("train.py", script);
    place.write("torch.py", "");
    place.write("lowtide/__init__.py", "");
    place.write("lowtide/_reserve_inside.py", PACKAGE);
    place
}

#[test]
fn the_story_says_when_it_was_used_how_long_and_how_much_smaller_a_batch_needs_none() {
    let place = with_package("import torch\nprint('trained')\n");
    let ran = place.run(&["--reserve", "4GiB", "--", "env", "PYTHONPATH=.", "python3", "train.py"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "trained\n"), "{}", ran.stderr);
    let told = "the reserve was used 2 times, 3.0 s in all, instead of an out-of-memory error. Without the reserve, memory would \
                have run out in the forward pass of step 2: 1.00 GiB of 4.00 GiB were used for 1.5 s (a batch 38 % smaller would fit).";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    let events = std::fs::read_to_string(place.path("runs/train-1/events.jsonl")).unwrap();
    assert_eq!(events.matches("\"event\":\"overflowed\"").count(), 2, "{events}");
}

#[test]
fn a_python_without_the_package_is_refused_by_name() {
    let place = Place::with("train.py", "import torch\nprint('trained')\n");
    place.write("torch.py", "");
    let ran = place.run(&["--reserve", "4GiB", "--", "python3", "-S", "train.py"]);
    assert_eq!(ran.stdout, "", "{}", ran.stderr);
    assert!(ran.stderr.contains("--reserve needs the package lowtide, which python3 has not"), "{}", ran.stderr);
}

#[test]
fn what_is_no_python_and_what_is_no_reserve_are_refused() {
    let place = Place::with("train.py", "");
    let ran = place.run(&["--reserve", "4GiB", "--", "true"]);
    assert!(ran.stderr.contains("--reserve is for a command that is Python"), "{}", ran.stderr);
    let ran = place.run(&["--reserve", "4MiB", "--", "python3", "train.py"]);
    assert_ne!(ran.code, Some(0));
    let ran = place.run(&["--reserve", "much", "--", "python3", "train.py"]);
    assert!(ran.stderr.contains("much"), "{}", ran.stderr);
}
