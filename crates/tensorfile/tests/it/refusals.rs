//! Files that are broken, dangerous or of another kind: each is refused, by name and place.

use std::path::Path;

use lowtide_core::Bytes;
use lowtide_tensorfile::{DecodeLimit, Sums, TensorFileError, open, open_within, rows};

use crate::kit::{Entry, TempFile, archive, entry, fixture, small_archive, tensor_pickle, text_of};

fn refusal_of(path: &Path) -> TensorFileError {
    match open(path).and_then(|contents| rows(&contents.tree, Sums::Compute)) {
        Ok(rows) => panic!("read as {rows:?}"),
        Err(error) => error,
    }
}

#[track_caller]
fn check(bytes: &[u8], expect: &str) {
    check_file(&TempFile::new("x.pt", bytes), expect);
}

#[track_caller]
fn check_file(file: &TempFile, expect: &str) {
    assert_eq!(text_of(&refusal_of(&file.path()), &file.path()), expect);
}

#[track_caller]
fn check_pickle(pickle: &[u8], expect: &str) {
    let entries = [entry("r/data.pkl", pickle), entry("r/data/0", &[0; 8])];
    check(&archive(&entries), expect);
}

#[test]
fn pickles_that_would_run_something() {
    let path = fixture("given/evil.pt");
    let error = refusal_of(&path);
    assert_eq!(
        text_of(&error, &path),
        "evil.pt: `evil/data.pkl` at byte 64: byte 14: GLOBAL names `posix.system`, which is not on the list of \
         allowed names"
    );
    assert_eq!(error.hint(), Some("nothing was executed; save plain containers and tensors, such as a state_dict"));
    assert!(!Path::new("lowtide-was-fooled").exists());
    let path = fixture("made/calls_print.pt");
    assert_eq!(
        text_of(&refusal_of(&path), &path),
        "calls_print.pt: `calls_print/data.pkl` at byte 64: byte 13: GLOBAL names `__builtin__.print`, which is \
         not on the list of allowed names"
    );
    check_pickle(
        b"cshutils\nrmtree\n(U\x01/tR.",
        "x.pt: `r/data.pkl` at byte 64: byte 21: REDUCE calls `shutils.rmtree`, which is not on the list of what may \
         be called",
    );
}

#[test]
fn damaged_bytes() {
    let mut bytes = std::fs::read(fixture("given/batch_0001.pt")).expect("the fixture");
    bytes[15386] ^= 0xff;
    check(
        &bytes,
        "x.pt: `batch_0001/data/5` at byte 15296: damaged: its checksum is 7b163692, and 060b6a91 was written",
    );
    let mut bytes = small_archive("r");
    bytes[70] ^= 0x20;
    check(&bytes, "x.pt: `r/data.pkl` at byte 64: damaged: its checksum is 0ad8c2e0, and aced269f was written");
}

#[test]
fn files_that_were_cut_short() {
    let bytes = std::fs::read(fixture("given/batch_0001.pt")).expect("the fixture");
    check(
        &bytes[..20515],
        "x.pt: byte 20515: it begins like a zip archive, but the directory that belongs at its end is missing: it was \
         cut short",
    );
    let bytes = std::fs::read(fixture("given/legacy.pt")).expect("the fixture");
    check(
        &bytes[..500],
        "x.pt: `storage 94908280172768` at byte 360: needs the bytes up to 560, but the file has 500: it was cut short",
    );
    check(&bytes[..100], "x.pt: the pickle at byte 21: byte 79: the pickle ends in the middle of BINUNICODE");
    check(b"", "x.pt: the file: it is empty");
    check(
        b"PK\x03\x04",
        "x.pt: byte 4: it begins like a zip archive, but the directory that belongs at its end is missing: it was \
         cut short",
    );
}

#[test]
fn archives_that_lie() {
    let pickle = tensor_pickle(&[2], &[1], 0, 2);
    let with = |entry: Entry| archive(&[crate::kit::entry("r/data.pkl", &pickle), entry]);
    check(
        &with(Entry { method: 12, ..entry("r/data/0", &[0; 8]) }),
        "x.pt: `r/data/0` at byte 183: compression method 12 of zip is not read here",
    );
    check(
        &with(Entry { flags: 1, ..entry("r/data/0", &[0; 8]) }),
        "x.pt: `r/data/0` at byte 183: an encrypted entry is not read here",
    );
    check(
        &with(Entry { length: Some(9), ..entry("r/data/0", &[0; 8]) }),
        "x.pt: `r/data/0` at byte 183: a stored entry of 9 bytes that takes 8",
    );
    check(
        &with(Entry { length: Some(90_000), method: 8, ..entry("r/data/0", &[0; 8]) }),
        "x.pt: `r/data/0` at byte 183: 90000 bytes cannot be packed into 8",
    );
    check(&with(entry("r/data.pkl", b"N.")), "x.pt: `r/data.pkl` at byte 256: a second entry of that name");
    check(
        &with(entry("r/byteorder", b"middle")),
        "x.pt: `r/byteorder` at byte 256: the byte order `middle` is not known",
    );
    check(&with(entry("r/constants.pkl", b"")), "x.pt: the file: a TorchScript archive is not read here");
    check(
        &with(entry("r/data/1", &[0; 8])),
        "x.pt: the root value: refers to the storage `0`, which the file does not have",
    );
    check(
        &archive(&[entry("r/other", b"")]),
        "x.pt: the file: a zip archive of neither torch nor numpy is not read here",
    );
    let whole = small_archive("r");
    let tail = whole.len() - 98;
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    // The offset of the directory, its size and the number of its entries.
    check(
        &changed(tail + 48 + 5, 1),
        "x.pt: byte 1099511628162: needs the bytes up to 1099511628384, but the file has 706: it was cut short",
    );
    check(
        &changed(tail + 40 + 3, 1),
        "x.pt: byte 386: needs the bytes up to 16777824, but the file has 706: it was cut short",
    );
    check(&changed(tail + 32 + 2, 1), "x.pt: byte 386: a directory of 222 bytes with 65540 entries");
    check(
        &changed(tail + 56 + 8 + 4, 9),
        "x.pt: byte 38654706272: needs the bytes up to 38654706328, but the file has 706: it was cut short",
    );
    let script = fixture("made/script.pt");
    let error = refusal_of(&script);
    assert_eq!(text_of(&error, &script), "script.pt: the file: a TorchScript archive is not read here");
    assert_eq!(error.hint(), Some("load it with torch.jit.load and save its state_dict"));
}

#[test]
fn tensors_that_reach_out_of_their_storage() {
    check_pickle(
        &tensor_pickle(&[3], &[1], 0, 2),
        "x.pt: the root value: a tensor of shape [3], stride [1] and offset 0 in float32 does not fit into a \
         storage of 8 bytes",
    );
    check_pickle(
        &tensor_pickle(&[2], &[1], 1, 2),
        "x.pt: the root value: a tensor of shape [2], stride [1] and offset 1 in float32 does not fit into a \
         storage of 8 bytes",
    );
    check_pickle(
        &tensor_pickle(&[2, 2], &[1, 1], 0, 2),
        "x.pt: the root value: a tensor of shape [2, 2], stride [1, 1] and offset 0 in float32 does not fit into a \
         storage of 8 bytes",
    );
    check_pickle(&tensor_pickle(&[2], &[1, 1], 0, 2), "x.pt: the root value: a tensor with 1 dimensions and 2 strides");
    check_pickle(
        &tensor_pickle(&[255; 20], &[0; 20], 0, 2),
        "x.pt: the root value: a tensor of shape [255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, \
         255, 255, 255, 255, 255, 255, 255], which is too large",
    );
    check_pickle(&tensor_pickle(&[1; 65], &[0; 65], 0, 2), "x.pt: the root value: has 65 dimensions");
    check_pickle(
        &tensor_pickle(&[2], &[1], 0, 3),
        "x.pt: the root value: needs 3 values of the storage `0`, which has 8 bytes",
    );
    check_pickle(
        b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
        "x.pt: the root value: is made of other arguments than torch or numpy would write",
    );
    check_pickle(
        b"ctorch._utils\n_rebuild_parameter\n(K\x01\x89NtR.",
        "x.pt: the root value: wraps a value that is no tensor",
    );
    check_pickle(b"]q\0h\0a.", "x.pt: the value `0`: contains itself");
    check_pickle(b"U\x01xQ.", "x.pt: the root value: refers to something outside the pickle that is no storage");
    check_pickle(
        b"ctorch\ndevice\n)R.",
        "x.pt: the root value: is made of other arguments than torch or numpy would write",
    );
}

#[test]
fn trees_that_are_larger_than_the_file() {
    // Each tuple holds the one before twice; the second is under the limit of the pickle reader and over that of a
    // tree.
    let laughs = |levels: usize| [b"K\x01\x85".to_vec(), b"2\x86".repeat(levels), b".".to_vec()].concat();
    check_pickle(
        &laughs(100),
        "x.pt: `r/data.pkl` at byte 64: byte 203: STOP asks for more than 33554432 values on a walk along all paths",
    );
    let limit =
        "decodes to more than 32.00 MiB of lists, dicts and numbers; the limit for a file of 408 bytes is 32.00 MiB";
    check_pickle(&laughs(22), &format!("x.pt: the value `0.0.0.0.1.0.1.1.1.0.1.0.0.0.1.0.1.1.0.0.0.0`: {limit}"));
    let deep = |levels: usize| [b"]".repeat(levels), b"a".repeat(levels - 1), b".".to_vec()].concat();
    check_pickle(&deep(201), "x.pt: `r/data.pkl` at byte 64: byte 401: STOP asks for more than 200 levels of nesting");
    let file = TempFile::new("x.pt", &archive(&[entry("r/data.pkl", &deep(200))]));
    assert!(open(&file.path()).is_ok());
    // One key of 60 KB over each of many tensors: only the paths are large.
    let key = [b"X\x60\xea\0\0".to_vec(), vec![b'k'; 60_000], b"q\0".to_vec()].concat();
    let tensor = tensor_pickle(&[2], &[1], 0, 2);
    let tensor = &tensor[2..tensor.len() - 1];
    let shared = [&key[..], b"0", tensor, b"q\x010](", &b"}h\0h\x01s".repeat(5000), b"e."].concat();
    check_pickle(
        &shared,
        "x.pt: the file: decodes to more than 32.00 MiB of names and lists; the limit for a file of 88.34 KiB is 32.00 MiB",
    );
}

#[test]
fn views_without_end_cost_nothing() {
    let trusted = DecodeLimit::new(Bytes::MAX);
    // 255^7 values, all of them the same one.
    let file = TempFile::new(
        "x.pt",
        &archive(&[
            entry("r/data.pkl", &tensor_pickle(&[255; 7], &[0; 7], 1, 2)),
            entry("r/data/0", &[0, 0, 0, 0, 0, 0, 0x80, 0x3f]),
        ]),
    );
    check_file(
        &file,
        "x.pt: the file: decodes to 255059.46 TiB of values; the limit for a file of 472 bytes is 256.00 MiB",
    );
    let contents = open_within(&file.path(), trusted).expect("a file");
    assert_eq!(rows(&contents.tree, Sums::Compute).expect("rows")[0].sum, Some(255_f64.powi(7)));
    // Windows over the same few values, as many as would take years to add.
    let file = TempFile::new(
        "x.pt",
        &archive(&[entry("r/data.pkl", &tensor_pickle(&[100; 9], &[1; 9], 0, 250)), entry("r/data/0", &[0; 4000])]),
    );
    let refused =
        open_within(&file.path(), trusted).and_then(|contents| rows(&contents.tree, Sums::Compute)).expect("rows");
    assert_eq!(refused[0].sum, None);
}

#[test]
fn files_of_other_kinds() {
    let mut tar = vec![0; 600];
    tar[257..262].copy_from_slice(b"ustar");
    check(&tar, "x.pt: the file: a tar archive, as torch wrote before version 0.2 is not read here");
    check(b"hello world", "x.pt: the file: a file of this kind is not read here");
    let gzip = std::fs::read(fixture("made/value_4.pkl.gz")).expect("the fixture");
    check(&gzip[..gzip.len() / 2], "x.pt: the pickle at byte 0: byte 154: incomplete deflate stream");
    check(&gzip[..gzip.len() - 5], "x.pt: byte 1012: unexpected end of file");
    let mut damaged = gzip.clone();
    damaged[gzip.len() - 6] ^= 1;
    check(&damaged, "x.pt: byte 1017: corrupt gzip stream does not have a matching checksum");
    check(
        b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}",
        "x.pt: the file: the header `{'descr': '<f4'}` is not understood",
    );
    check(
        b"\x93NUMPY\x09\x00\x10\x00{'descr': '<f4'}",
        "x.pt: the file: version 9.0 of numpy's format is not read here",
    );
    let npy = |header: &str, data: &[u8]| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    };
    check(
        &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", &[0; 8]),
        "x.pt: byte 65: a tensor of shape [3], stride [1] and offset 0 in float32 does not fit into a storage of 8 \
         bytes",
    );
    check(
        &npy("{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", &[0; 16]),
        "x.pt: byte 66: a numpy array of type `<f16` is not read here",
    );
    check(
        &npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", &[0; 16]),
        "x.pt: byte 74: a numpy array of type `structured` is not read here",
    );
    let safetensors = |header: &str, data: &[u8]| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    };
    check(
        &safetensors(r#"{"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}"#, &[0; 8]),
        "x.pt: the value `x`: needs the bytes up to 82, but the file has 78: it was cut short",
    );
    let twice = r#"{"x": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, "x": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}"#;
    check(
        &safetensors(twice, &[0; 8]),
        "x.pt: byte 8: no header of safetensors: `x` is there twice at line 1 column 120",
    );
    let twice = r#"{"__metadata__": {"a": "1", "a": "2"}}"#;
    check(&safetensors(twice, &[]), "x.pt: byte 8: no header of safetensors: `a` is there twice at line 1 column 37");
    check(
        &safetensors(r#"{"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}"#, &[0; 8]),
        "x.pt: the value `x`: takes 8 bytes, and its shape and type make 12",
    );
    check(
        &safetensors(r#"{"x": {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]}}"#, &[0; 8]),
        "x.pt: the value `x`: a tensor of type `F31` is not read here",
    );
    check(
        &safetensors(r#"{"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}"#, &[0; 8]),
        "x.pt: the value `x`: ends at 0, before it begins at 8",
    );
    check(
        &safetensors(r#"{"x": {"y": "z"}}"#, &[0; 8]),
        "x.pt: the value `x`: is described without type, shape and offsets: missing field `dtype`",
    );
    check(
        &safetensors(r#"{"x": 1}"#, &[0; 8]),
        "x.pt: the value `x`: is described without type, shape and offsets: invalid type: integer `1`, expected \
         struct TensorInfo",
    );
    check(
        &safetensors(r#"{"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}"#, &[0; 16]),
        "x.pt: byte 8: no header of safetensors: invalid offset for tensor `x`",
    );
    check(
        &safetensors(r#"{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#, &[0; 9]),
        "x.pt: the file: the tensors end at byte 77, and the file has 78",
    );
    check(
        &safetensors(r#"{"x": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}}"#, &[0; 8]),
        "x.pt: the value `x`: a tensor of shape [4294967296, 4294967296], which is too large",
    );
    check(
        &safetensors(r#"{"x": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}"#, &[0; 2]),
        "x.pt: the value `x`: a tensor of type `F4` is not read here",
    );
    let error = open(Path::new("/nowhere/x.pt")).unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/x.pt: the file: No such file or directory (os error 2)");
    let error = open(Path::new("/")).unwrap_err();
    assert_eq!(error.to_string(), "/: the file: not a regular file");
}
