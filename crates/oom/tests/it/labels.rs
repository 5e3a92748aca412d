//! Every message of the collection gets the label people gave it, alone and behind its exception class in a traceback.

use lowtide_oom::{Place, is_shown, look_alike, read, scan};
use serde_json::Value;

fn messages() -> Vec<Value> {
    include_str!("../fixtures/messages.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

fn label(place: Option<Place>) -> &'static str {
    match place {
        Some(Place::Device) => "device_oom",
        Some(Place::Host) => "host_oom",
        None => "not_oom",
    }
}

#[test]
fn labels_hold_without_the_exception_class() {
    for message in messages() {
        let text = message["text"].as_str().expect("text");
        assert_eq!(label(read(text).map(|oom| oom.place)), message["label"], "{}", message["id"]);
    }
}

#[test]
fn labels_hold_inside_a_traceback() {
    for message in messages() {
        let text = message["text"].as_str().expect("text");
        let class = message["exc"].as_str().expect("exc");
        let log = format!(
            "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\n{class}: {text}\n"
        );
        if matches!(class, "log" | "dmesg") {
            continue;
        }
        assert_eq!(label(read(&log).map(|oom| oom.place)), message["label"], "{}", message["id"]);
    }
}

#[test]
fn look_alikes_are_named() {
    for message in messages().iter().filter(|message| message["label"] == "not_oom") {
        let text = message["text"].as_str().expect("text");
        assert!(look_alike(text).is_some(), "{}", message["id"]);
    }
}

#[test]
fn what_a_traceback_ends_with_is_the_program_s_own() {
    for message in messages() {
        let text = message["text"].as_str().expect("text");
        let class = message["exc"].as_str().expect("exc");
        let log = match class {
            "log" | "dmesg" => format!("starting\n{text}\n"),
            class => {
                format!("Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n{class}: {text}\n")
            }
        };
        for hit in scan(log.as_bytes()) {
            let (line, before) = (&log.as_bytes()[hit.range.clone()], &log.as_bytes()[..hit.range.start]);
            assert!(!is_shown(line, before), "{}: {}", message["id"], String::from_utf8_lossy(line));
        }
    }
}
