//! Small files that would decode to much: each is refused before anything is read, unless the limit is raised.

use std::io::Write;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use lowtide_core::Bytes;
use lowtide_tensorfile::{DecodeLimit, Sums, TensorFileError, open, open_within, rows};

use crate::kit::{Entry, TempFile, archive, entry, tensor_pickle, text_of};

#[track_caller]
fn check(name: &str, bytes: &[u8], expect: &str) {
    let file = TempFile::new(name, bytes);
    let error = open(&file.path()).expect_err("it decodes to too much");
    assert_eq!(text_of(&error, &file.path()), expect);
    let hint = "if you trust the file, raise the limit: --decode-limit SIZE, or data.decode_limit of a run";
    assert_eq!(error.hint(), Some(hint));
}

fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [&b"\x93NUMPY\x01\0"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
}

fn gzip(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    pieces.into_iter().for_each(|piece| packed.write_all(&piece).expect("memory"));
    packed.finish().expect("memory")
}

fn deflated(name: &str, bytes: &[u8]) -> Entry {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).expect("memory");
    // The checksum of the kit is that of the packed bytes, which nobody gets to compare.
    Entry { method: 8, length: Some(bytes.len() as u64), ..entry(name, &packed.finish().expect("memory")) }
}

#[test]
fn rows_that_cost_nothing() {
    let row = "decodes to 9223372036854775807 rows without values; the limit for a file of";
    let expect = format!("x.npy: the file: {row} 88 bytes is 268435456");
    check("x.npy", &npy("|u1", "(9223372036854775807, 0)", b""), &expect);
    let expect = format!("x.npy: the file: {row} 91 bytes is 268435456");
    check("x.npy", &npy("<f8", "(0, 9223372036854775807, 0)", b""), &expect);
    let file = TempFile::new("x.npy", &npy("<f8", "(1000000, 0)", b""));
    assert!(open(&file.path()).is_ok(), "an empty array is nothing out of the ordinary");
}

#[test]
fn views_that_repeat_their_values() {
    let bytes = archive(&[
        entry("r/data.pkl", &tensor_pickle(&[255; 4], &[0; 4], 0, 1)),
        entry("r/data/0", &[0, 0, 0x80, 0x3f]),
    ]);
    let size = bytes.len();
    let expect =
        format!("x.pt: the file: decodes to 15.75 GiB of values; the limit for a file of {size} bytes is 256.00 MiB");
    check("x.pt", &bytes, &expect);
    let file = TempFile::new("x.pt", &bytes);
    let raised = DecodeLimit::new(Bytes::from_gib(16));
    assert!(open_within(&file.path(), raised).is_ok());
    assert!(matches!(
        open_within(&file.path(), raised.under(Some(Bytes::from_gib(1)))),
        Err(TensorFileError::TooMuch { .. })
    ));
}

#[test]
fn packed_zeros() {
    let zeros = npy("|u1", "(300000000,)", &vec![0; 300_000_000]);
    let bytes = archive(&[deflated("x.npy", &zeros)]);
    let refused = |size: usize| format!("the limit for a file of {} is 256.00 MiB", Bytes(size as u64));
    let expect = format!("x.npz: the file: decodes to 286.10 MiB of values; {}", refused(bytes.len()));
    check("x.npz", &bytes, &expect);
    let far = [b"\x80\x04\x8e".to_vec(), 300_000_000_u64.to_le_bytes().to_vec()];
    let bytes = gzip(far.into_iter().chain(std::iter::repeat_n(vec![0; 1_000_000], 300)).chain([b".".to_vec()]));
    let expect = format!("x.pkl.gz: the file: decodes to more than 256.00 MiB; {}", refused(bytes.len()));
    check("x.pkl.gz", &bytes, &expect);
}

#[test]
fn pickles_of_nothing() {
    let opcodes: [(&[u8], &[u8]); 9] = [
        (b"(", b"]"),
        (b"(", b"}"),
        (b"(", b")"),
        (b"(", b"\x8f"),
        (b"(", b"M\0\x01"),
        (b"(", b"\x8c\x01a"),
        (b"(", b"("),
        (b"]", b"\x94"),
        (b"]", b"\x85"),
    ];
    for (first, opcode) in opcodes {
        let many = std::iter::repeat_n(opcode.repeat(1_000_000), 10);
        let bytes = gzip([b"\x80\x04".to_vec(), first.to_vec()].into_iter().chain(many));
        let size = Bytes(bytes.len() as u64);
        let expect = format!(
            "x.pkl.gz: the pickle at byte 0: decodes to more than 32.00 MiB of lists, dicts and numbers; the limit for a \
             file of {size} is 32.00 MiB"
        );
        check("x.pkl.gz", &bytes, &expect);
    }
}

#[test]
fn large_pickles_are_held_to_a_line() {
    let bytes = archive(&[entry("r/data.pkl", &[&b"("[..], &b"]".repeat(10 << 20), b"l."].concat())]);
    let file = TempFile::new("x.pt", &bytes);
    let error =
        open_within(&file.path(), DecodeLimit::default().under(Some(Bytes::from_mib(100)))).expect_err("too much");
    assert_eq!(
        text_of(&error, &file.path()),
        "x.pt: `r/data.pkl` at byte 64: decodes to more than 25.00 MiB of lists, dicts and numbers; the limit for a file \
         of 10.00 MiB is 25.00 MiB"
    );
}

#[test]
fn entries_that_share_bytes() {
    let bytes = archive(&[entry("a.npy", &npy("|u1", "(4,)", b"abcd")), entry("b.npy", &npy("|u1", "(4,)", b"abcd"))]);
    let file = TempFile::new("x.npz", &bytes);
    assert!(open(&file.path()).is_ok());
    // The second entry of the directory leads to the first one's bytes, under its own name.
    let mut shared = bytes.clone();
    let directory = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").expect("a second entry");
    shared[directory + 42..directory + 46].copy_from_slice(&[0; 4]);
    let refused = |bytes: &[u8]| {
        let file = TempFile::new("x.npz", bytes);
        text_of(&open(&file.path()).expect_err("entries that share bytes"), &file.path())
    };
    let other = "x.npz: `b.npy` at byte 0: this entry has another name in the directory than before its bytes";
    assert_eq!(refused(&shared), other);
    // With its own header, which says that its bytes begin where those of the first do.
    let first = archive(&[entry("a.npy", b""), entry("b.npy", &npy("|u1", "(4,)", b"abcd"))]);
    let mut shared = first.clone();
    let entry_of = |name: &str| first.windows(4).rposition(|four| four == b"PK\x01\x02").expect(name);
    let second = first.windows(4).position(|four| four == b"PK\x01\x02").expect("a first entry");
    assert_ne!(entry_of("b.npy"), second);
    for at in [20, 24] {
        shared[second + at..second + at + 4].copy_from_slice(&100_u32.to_le_bytes());
    }
    assert_eq!(refused(&shared), "x.npz: `b.npy` at byte 128: it shares bytes with the entry `a.npy`");
}

#[test]
fn compressed_files_are_inflated_once() {
    // In columns and larger than what is kept: every value was a read from the start.
    let values: Vec<u8> = (0..3000_u32 * 3000).flat_map(|value| f64::from(value % 1000).to_le_bytes()).collect();
    let header = "{'descr': '<f8', 'fortran_order': True, 'shape': (3000, 3000), }\n";
    let array = [&b"\x93NUMPY\x01\0"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &values].concat();
    let mut packed = deflated("x.npy", &array);
    packed.length = Some(array.len() as u64);
    let bytes = archive(&[packed]);
    // The kit's checksum is that of the packed bytes: put the right one.
    let right = crc32fast::hash(&array).to_le_bytes();
    let at = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").expect("an entry");
    let mut bytes = bytes;
    bytes[at + 16..at + 20].copy_from_slice(&right);
    check_sums("x.npz", &bytes, &[(3000.0 * 3000.0 / 1000.0) * 499_500.0]);
    // Thousands of arrays behind each other in one stream.
    let array = |value: u8| {
        let head = b"cnumpy.core.numeric\n_frombuffer\n(\x8e".to_vec();
        let tail = b"cnumpy\ndtype\n(X\x02\0\0\0u1\x89\x88tRM\x88\x13\x85X\x01\0\0\0CtR".to_vec();
        [head, 5000_u64.to_le_bytes().to_vec(), vec![value; 5000], tail].concat()
    };
    let many = (0..4000).map(|index| array((index % 7) as u8));
    let bytes = gzip([b"\x80\x04](".to_vec()].into_iter().chain(many).chain([b"e.".to_vec()]));
    let sums: Vec<f64> = (0..4000).map(|index| 5000.0 * f64::from(index % 7)).collect();
    check_sums("x.pkl.gz", &bytes, &sums);
}

#[track_caller]
fn check_sums(name: &str, bytes: &[u8], expect: &[f64]) {
    let file = TempFile::new(name, bytes);
    let begin = Instant::now();
    let rows = rows(&open(&file.path()).expect("a good file").tree, Sums::Compute).expect("good values");
    let sums: Vec<f64> = rows.iter().map(|row| row.sum.expect("numbers")).collect();
    assert_eq!(sums, expect);
    assert!(begin.elapsed() < Duration::from_secs(20), "inflated again and again: {:?}", begin.elapsed());
}
