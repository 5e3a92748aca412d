//! No bytes make it panic, and how a text comes changes nothing.

use lowtide_log::{BatchReport, TextDecoder, bar, frames, is_of_group, shows_progress, steps, time, tracebacks};
use proptest::prelude::*;

fn read_everything(text: &[u8]) {
    let lossy = String::from_utf8_lossy(text);
    let _ = (BatchReport::find(text), frames(&lossy), is_of_group(text), tracebacks(text).count());
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
        if let Some(bar) = bar(line) {
            assert!(line.starts_with(bar.text));
            assert!(bar.steps().is_none_or(|(done, all)| done <= all));
        }
        let _ = (shows_progress(line), time(&String::from_utf8_lossy(line)));
    }
    let forward: Vec<u64> = steps(text).collect();
    let mut backward: Vec<u64> = steps(text).rev().collect();
    backward.reverse();
    assert_eq!(forward, backward);
}

/// What the readers look for, in any order.
const WORDS: [&str; 30] = [
    "step",
    "iter",
    "global_",
    " ",
    ":",
    "=",
    "[",
    "]",
    "\n",
    "\r",
    "12",
    "/",
    "100",
    "00:03",
    "<",
    "it/s",
    "%",
    "|",
    "━",
    "╸",
    "\x1b[",
    "m",
    "Traceback (most recent call last)",
    "  File \"",
    "\"",
    "[rank1]: ",
    "3: ",
    "***** Running Evaluation",
    "tokens per iteration will be",
    ",",
];

proptest! {
    #[test]
    fn noise(text in prop::collection::vec(any::<u8>(), 0..2048)) {
        read_everything(&text);
    }

    #[test]
    fn words(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..60)) {
        read_everything(words.concat().as_bytes());
    }

    #[test]
    fn pieces_decode_as_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
        let decoded = |pieces: &[&[u8]]| {
            let mut decoder = TextDecoder::default();
            let mut text: Vec<u8> = pieces.iter().flat_map(|piece| decoder.decode(piece).into_owned()).collect();
            text.extend(decoder.finish());
            text
        };
        let cut = cut.index(bytes.len() + 1);
        prop_assert_eq!(decoded(&[&bytes[..cut], &bytes[cut..]]), decoded(&[&bytes]));
    }
}
