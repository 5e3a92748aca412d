//! Any bytes at all must be read without a panic, in the time of a search.
//!
//! Run with `cargo +nightly fuzz run read_oom` from the root of the project; give it the messages in `crates/oom/tests/fixtures` as a
//! start with `mkdir -p fuzz/corpus/read_oom && cp crates/oom/tests/fixtures/messages.jsonl fuzz/corpus/read_oom/`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowtide_oom::{look_alike, read, scan};

fuzz_target!(|bytes: &[u8]| {
    let mut last = 0;
    for found in scan(bytes) {
        assert!(found.range.start >= last && found.range.end <= bytes.len());
        last = found.range.end;
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = (read(&text), look_alike(&text));
});
