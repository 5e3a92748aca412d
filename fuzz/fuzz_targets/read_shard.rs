//! Any bytes at all must be refused or read without a panic, also where all checksums are right.
//!
//! The first byte says what the rest is: a whole file, an index that is wrapped into a file with good checksums, or a
//! record.
//!
//! Run with `cargo +nightly fuzz run read_shard` from the root of the project.

#![no_main]

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lowtide_data::shard::{Reader, Record, Scratch};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let names = ["a".to_owned(), "b".to_owned()];
    match kind % 4 {
        0 => read_all(bytes),
        1 => read_all(&around_index(bytes, 2)),
        2 => read_all(&around_index(bytes, 3)),
        _ => {
            let _ = Record::parse(bytes, &names);
        }
    }
});

fn read_all(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("read_shard.{}", std::process::id()));
    fs::write(&path, bytes).expect("room in the temporary folder");
    let _ = read_file(&path);
}

fn read_file(path: &Path) -> Option<()> {
    let reader = Reader::open(path).ok()?;
    let mut scratch = Scratch::default();
    let mut buffer = vec![0; reader.bytes_of(0..reader.len()).ok()?.get() as usize];
    let loaded = reader.read(0..reader.len(), &mut buffer).ok()?;
    for record in loaded.records() {
        let _ = loaded.record(record, &mut scratch);
    }
    Some(())
}

/// A file of a version whose index is the second half of `bytes` and whose records are the first, with good checksums all
/// around.
fn around_index(bytes: &[u8], version: u8) -> Vec<u8> {
    let (records, index) = bytes.split_at(bytes.len() / 2);
    let mut file = b"\x89LTS\r\n\x1a\n".to_vec();
    file.extend([version, 0, 0, 0]);
    file.resize(60, 0);
    file.extend(crc32c::crc32c(&file).to_le_bytes());
    file.extend(records);
    file.resize(file.len().next_multiple_of(64), 0);
    let index_offset = file.len() as u64;
    file.extend(index);
    let count = index.get(8..16).map_or(0, |count| u64::from_le_bytes(count.try_into().expect("8 bytes")));
    let mut footer = Vec::new();
    for number in [index_offset, index.len() as u64, count, file.len() as u64 + 64] {
        footer.extend(number.to_le_bytes());
    }
    footer.extend(crc32c::crc32c(index).to_le_bytes());
    footer.resize(56, 0);
    footer.extend(crc32c::crc32c(&footer).to_le_bytes());
    footer.extend(b"LTSE");
    file.extend(footer);
    file
}
