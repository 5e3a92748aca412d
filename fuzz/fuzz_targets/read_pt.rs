//! Any file at all must be read or refused without a panic.
//!
//! Run with `cargo +nightly fuzz run read_pt` from the root of the project; give it real files as a start with
//! `mkdir -p fuzz/corpus/read_pt && cp crates/tensorfile/tests/fixtures/*/*.p* crates/tensorfile/tests/fixtures/*/*.np* fuzz/corpus/read_pt/`.

#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use lowtide_tensorfile::{Sums, open, rows};

fuzz_target!(|bytes: &[u8]| {
    // The readers take files, because they read by offset.
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for the file");
    if let Ok(contents) = open(file.path()) {
        let _ = rows(&contents.tree, Sums::Compute);
    }
});
