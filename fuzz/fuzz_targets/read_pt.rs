//! Any file at all must be read or refused without a panic, and decodes to no more than its limit.
//!
//! Run with `cargo +nightly fuzz run read_pt` from the root of the project; give it real files as a start with
//! `mkdir -p fuzz/corpus/read_pt && cp crates/tensorfile/tests/fixtures/*/*.p* crates/tensorfile/tests/fixtures/*/*.np* fuzz/corpus/read_pt/`.

#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use lowtide_core::Bytes;
use lowtide_data::BatchFile;
use lowtide_tensorfile::{DecodeLimit, Sums, open_within, rows};

const LIMIT: Bytes = Bytes::from_mib(4);

fuzz_target!(|bytes: &[u8]| {
    // The readers take files, because they read by offset.
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for the file");
    let limit = DecodeLimit::new(LIMIT);
    if let Ok(contents) = open_within(file.path(), limit) {
        let listed = rows(&contents.tree, Sums::Compute);
        let held = |row: &lowtide_tensorfile::Row| row.sum.map_or(0, |_| row.bytes.get());
        let values = listed.iter().flatten().map(held).sum::<u64>();
        assert!(values <= LIMIT.get(), "{values} bytes of values were read");
    }
    if let Ok(batch) = BatchFile::open_within(file.path(), limit)
        && let Ok(samples) = batch.read_all()
    {
        // Besides values a sample takes something for each field, of which there are as many as rows.
        let taken = samples.iter().map(|sample| sample.bytes().get()).sum::<u64>();
        let rows = limit.rows(Bytes(bytes.len() as u64));
        let tables = limit.tables(Bytes(bytes.len() as u64)).get();
        assert!(taken <= LIMIT.get() + 512 * rows + 16 * tables, "{taken} bytes of samples");
    }
});
