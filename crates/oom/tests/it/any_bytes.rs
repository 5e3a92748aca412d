//! No bytes make it panic: noise, broken messages, messages cut anywhere.

use lowtide_oom::{look_alike, read, scan};
use proptest::prelude::*;
use serde_json::Value;

fn texts() -> Vec<String> {
    include_str!("../fixtures/messages.jsonl")
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("a line of JSON")["text"].as_str().expect("text").to_owned()
        })
        .collect()
}

fn exercise(bytes: &[u8]) {
    let mut last = 0;
    for found in scan(bytes) {
        assert!(found.range.start >= last && found.range.end <= bytes.len());
        last = found.range.end;
    }
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(read(&text).is_some(), scan(text.as_bytes()).next().is_some());
    let _ = look_alike(&text);
}

#[test]
fn messages_cut_at_every_position() {
    for text in texts() {
        for end in 0..=text.len() {
            exercise(&text.as_bytes()[..end]);
            exercise(&text.as_bytes()[end..]);
        }
    }
}

#[test]
fn a_message_within_a_message() {
    let texts = texts();
    for first in &texts {
        for second in &texts {
            let _ = read(&format!("{first} {second}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        exercise(&bytes);
    }

    #[test]
    fn mutated_messages(
        which in 0_usize..40,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        inserted in "(\\PC|[0-9.,:()\\[\\]\\-]){0,12}",
        at in any::<prop::sample::Index>(),
    ) {
        let mut bytes = texts()[which].clone().into_bytes();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let at = at.index(bytes.len());
        bytes.splice(at..at, inserted.into_bytes());
        exercise(&bytes);
    }
}
