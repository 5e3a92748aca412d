//! Formats beside torch's, from bytes written by hand; `torch_save.rs` reads the files that numpy made.

use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Format, Loader, Sums, Tree, open, rows};

use crate::kit::{Entry, TempFile, archive, entry, fixture, small_archive, tensor_pickle, text_of};

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

#[test]
fn tensors_of_safetensors_come_in_the_order_of_their_bytes() {
    let header = r#"{"a":{"dtype":"I16","shape":[2],"data_offsets":[8,12]},"__metadata__":{"format":"pt"},
        "z":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},
        "e":{"dtype":"BF16","shape":[0],"data_offsets":[12,12]}}"#;
    let data = [&floats(&[1.5, -4.0])[..], &[1, 0, 255, 255]].concat();
    let file = TempFile::new("x.safetensors", &safetensors(header, &data));
    let contents = open(&file.path()).expect("a file");
    assert_eq!(contents.format, Format::Safetensors);
    assert_eq!(contents.tree.at("__metadata__.format").and_then(Tree::str), Some("pt"));
    let rows = rows(&contents.tree, Sums::Compute).expect("rows");
    let shown: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {:?} {:?} {:?}", row.path, row.dtype, row.shape, row.stride, row.sum))
        .collect();
    assert_eq!(
        shown,
        ["z float32 [2, 1] [1, 1] Some(-2.5)", "a int16 [2] [1] Some(0.0)", "e bfloat16 [0] [1] Some(0.0)",]
    );
}

#[test]
fn of_safetensors_only_the_header_is_read() {
    const LENGTH: u64 = 100 << 30;
    let header = format!(r#"{{"x":{{"dtype":"U8","shape":[{LENGTH}],"data_offsets":[0,{LENGTH}]}}}}"#);
    let file = TempFile::new("x.safetensors", &safetensors(&header, &[]));
    let handle = std::fs::OpenOptions::new().write(true).open(file.path()).expect("the file");
    // All of it is a hole: it takes no room, and reading it would take minutes.
    handle.set_len(8 + header.len() as u64 + LENGTH).expect("a file with a hole");
    let contents = open(&file.path()).expect("a file");
    assert_eq!(contents.tree.at("x").and_then(Tree::tensor).expect("a tensor").bytes(), LENGTH);
}

#[test]
fn compressed_entries_of_torch_archives_are_inflated() {
    let values = floats(&[1.5, 2.0]);
    // One stored block of deflate.
    let packed = [&[1, 8, 0, !8, !0][..], &values].concat();
    let mut bytes = archive(&[
        entry("r/data.pkl", &tensor_pickle(&[2], &[1], 0, 2)),
        Entry { method: 8, length: Some(8), ..entry("r/data/0", &packed) },
    ]);
    // The checksum is that of the values, not of what is in the file.
    let (wrong, right) = (crc32fast::hash(&packed).to_le_bytes(), crc32fast::hash(&values).to_le_bytes());
    for at in 0..bytes.len() - 4 {
        if bytes[at..at + 4] == wrong {
            bytes[at..at + 4].copy_from_slice(&right);
        }
    }
    let file = TempFile::new("x.pt", &bytes);
    let contents = open(&file.path()).expect("a file");
    assert_eq!(rows(&contents.tree, Sums::Compute).expect("rows")[0].sum, Some(3.5));
}

#[test]
fn formats_are_told_by_their_bytes() {
    let format = |name: &str| open(&fixture(name)).expect("a file").format;
    assert_eq!(format("given/dtypes.pt"), Format::Torch);
    assert_eq!(format("given/legacy.pt"), Format::TorchLegacy);
    assert_eq!(format("made/array_0.npy"), Format::Npy);
    assert_eq!(format("made/plain.npz"), Format::Npz);
    assert_eq!(format("made/compressed.npz"), Format::Npz);
    assert_eq!(format("made/value_0.pkl"), Format::Pickle);
    assert_eq!(format("made/value_5.pkl"), Format::Pickle);
    assert_eq!(format("made/value_5.pkl.gz"), Format::PickleGzip);
}

#[test]
fn arrays_of_pickles_stay_in_the_file() {
    for protocol in 3..6 {
        let contents = open(&fixture(&format!("made/value_{protocol}.pkl"))).expect("a file");
        let tensor = contents.tree.at("x").and_then(Tree::tensor).expect("an array");
        assert!(tensor.storage().offset().is_some(), "protocol {protocol}");
        let names = contents.tree.at("names").expect("a list");
        assert_eq!(names.at("1").and_then(Tree::str), Some("b"));
    }
}

#[test]
fn a_buffer_of_another_size_is_refused() {
    let file = TempFile::new("x.pt", &small_archive("r"));
    let contents = open(&file.path()).expect("a file");
    let tensor = contents.tree.tensor().expect("a tensor");
    let error = Loader::new(Bytes::ZERO).read_into(tensor, &mut [0; 7]).unwrap_err();
    assert_eq!(text_of(&error, &file.path()), "x.pt: `r/data/0` at byte 320: a buffer of 7 bytes is given for 8");
}

#[test]
fn a_storage_that_tensors_share_is_read_once() {
    let views = std::fs::read(fixture("made/views.pt")).expect("the fixture");
    let file = TempFile::new("views.pt", &views);
    let contents = open(&file.path()).expect("a file");
    let view = |path: &str| contents.tree.at(path).and_then(Tree::tensor).expect("a tensor");
    let mut loader = Loader::new(Bytes::from_mib(1));
    let columns = loader.read(view("columns")).expect("values");
    // The file is gone; what the first view needed is still held.
    std::fs::OpenOptions::new().write(true).open(file.path()).expect("the file").set_len(0).expect("an empty file");
    assert_eq!(columns[..8], floats(&[0.0, 2.0]));
    assert_eq!(loader.read(view("transposed")).expect("values")[..8], floats(&[0.0, 8.0]));
    assert!(loader.read(view("windows")).is_err());
}

#[test]
fn a_storage_is_read_by_offset() {
    let file = TempFile::new("x.pt", &small_archive("r"));
    let contents = open(&file.path()).expect("a file");
    let first = Arc::clone(contents.tree.tensor().expect("a tensor").storage());
    let mut bytes = [0; 8];
    first.read_at(0, &mut bytes).expect("values");
    assert_eq!(bytes[..], floats(&[1.5, 2.0]));
    let mut part = [0; 4];
    first.read_at(4, &mut part).expect("values");
    assert_eq!(part[..], floats(&[2.0]));
    let error = first.read_at(5, &mut part).unwrap_err();
    assert_eq!(
        text_of(&error, &file.path()),
        "x.pt: `r/data/0` at byte 320: bytes from 5 on are asked for, and there are 8"
    );
}
