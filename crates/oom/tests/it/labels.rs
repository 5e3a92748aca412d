//! Every message of the collection gets the label people gave it, alone and behind its exception class in a traceback.

use lowtide_oom::{Place, look_alike, read};
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
