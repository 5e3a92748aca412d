//! What is written, read back by a decoder of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lowtide_tensorboard::{DropCounts, Error, Options, Retention, Scalar, Writer};

/// One field of a protocol buffer message.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// An event as this test wants it.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Version(String),
    Start(u64),
    Scalar { tag: String, step: u64, time: f64, value: f32 },
    Text { tag: String, step: u64, plugin: String, text: String },
}

/// The checksum bit by bit, as its definition has it.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The payloads of all whole records; a wrong checksum fails the test.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while bytes.len() >= 12 {
        let length = little_endian(&bytes[..8]) as usize;
        assert_eq!(little_endian(&bytes[8..12]), u64::from(masked(&bytes[..8])), "checksum of a length");
        let Some(payload) = bytes.get(12..12 + length) else { break };
        let Some(checksum) = bytes.get(12 + length..16 + length) else { break };
        assert_eq!(little_endian(checksum), u64::from(masked(payload)), "checksum of a record");
        records.push(payload.to_vec());
        bytes = &bytes[16 + length..];
    }
    records
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number without an end");
}

fn message(mut bytes: &[u8]) -> BTreeMap<u64, Field> {
    let mut fields = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let mut take = |count: usize| {
            let (head, tail) = bytes.split_at(count);
            bytes = tail;
            head.to_vec()
        };
        let field = match key & 7 {
            1 => Field::Number(little_endian(&take(8))),
            5 => Field::Number(little_endian(&take(4))),
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (head, tail) = bytes.split_at(length);
                bytes = tail;
                Field::Bytes(head.to_vec())
            }
            kind => panic!("a field of kind {kind}"),
        };
        assert_eq!(fields.insert(key >> 3, field), None, "field {} twice", key >> 3);
    }
    fields
}

fn number(fields: &BTreeMap<u64, Field>, field: u64) -> Option<u64> {
    match fields.get(&field)? {
        Field::Number(value) => Some(*value),
        Field::Bytes(_) => None,
    }
}

fn bytes(fields: &BTreeMap<u64, Field>, field: u64) -> Option<&[u8]> {
    match fields.get(&field)? {
        Field::Number(_) => None,
        Field::Bytes(value) => Some(value),
    }
}

fn text(fields: &BTreeMap<u64, Field>, field: u64) -> Option<String> {
    String::from_utf8(bytes(fields, field)?.to_vec()).ok()
}

fn seen(payload: &[u8]) -> Option<Seen> {
    let event = message(payload);
    if let Some(version) = text(&event, 3) {
        return Some(Seen::Version(version));
    }
    let step = number(&event, 2)?;
    if let Some(log) = bytes(&event, 7) {
        assert_eq!(number(&message(log), 1), Some(1));
        return Some(Seen::Start(step));
    }
    let value = message(bytes(&message(bytes(&event, 5)?), 1)?);
    let tag = text(&value, 1)?;
    if let Some(bits) = number(&value, 2) {
        let time = f64::from_bits(number(&event, 1)?);
        return Some(Seen::Scalar { tag, step, time, value: f32::from_bits(bits as u32) });
    }
    let plugin = text(&message(bytes(&message(bytes(&value, 9)?), 1)?), 1)?;
    Some(Seen::Text { tag, step, plugin, text: text(&message(bytes(&value, 8)?), 8)? })
}

fn read(path: &Path) -> Vec<Seen> {
    let bytes = fs::read(path).expect("an event file");
    records(&bytes).iter().map(|payload| seen(payload).expect("an event of a known form")).collect()
}

fn values(path: &Path, wanted: &str) -> Vec<(u64, f32)> {
    let pick = |seen| match seen {
        Seen::Scalar { tag, step, value, .. } if tag == wanted => Some((step, value)),
        _ => None,
    };
    read(path).into_iter().filter_map(pick).collect()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn scalar(tag: &str, step: u64, value: f64) -> Scalar<'_> {
    Scalar { tag, step, time: step as f64 / 2.0, value, keep: Retention::Largest }
}

fn options() -> Options {
    Options { host: "box one".to_owned(), pid: 42, ..Options::default() }
}

#[test]
fn a_file_holds_what_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("a/b");
    let mut writer =
        Writer::create(&made, 1_763_200_000.9, &Options { resumes_at: Some(200), ..options() }).expect("a file");
    writer.scalar(scalar("train/loss", 200, 2.5)).expect("written");
    writer.text("events/oom", 300, 7.0, "no room for 15.82 GiB").expect("written");
    let path = writer.path().to_owned();
    writer.close().expect("written");
    assert_eq!(files(&made), ["events.out.tfevents.1763200000.box_one.42.lowtide"]);
    let expected = [
        Seen::Version("brain.Event:2".to_owned()),
        Seen::Start(200),
        Seen::Scalar { tag: "train/loss".to_owned(), step: 200, time: 100.0, value: 2.5 },
        Seen::Text {
            tag: "events/oom".to_owned(),
            step: 300,
            plugin: "text".to_owned(),
            text: "no room for 15.82 GiB".to_owned(),
        },
    ];
    assert_eq!(read(&path), expected);
}

#[test]
fn each_start_has_a_file_of_its_own_and_leaves_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut paths: Vec<PathBuf> = Vec::new();
    // Within one second, with numbers of processes that started anew; the order of names is that of the starts.
    for (step, pid) in (0..).zip([999, 1003, 42]) {
        let mut writer = Writer::create(folder.path(), 1000.0, &Options { pid, ..options() }).expect("a file");
        writer.scalar(scalar("a", step, 1.0)).expect("written");
        paths.push(writer.path().to_owned());
    }
    let name = |second: u64, pid: u32| format!("events.out.tfevents.{second:010}.box_one.{pid}.lowtide");
    assert_eq!(files(folder.path()), [name(1000, 999), name(1001, 1003), name(1002, 42)]);
    for (step, path) in (0..).zip(&paths) {
        assert_eq!(values(path, "a"), [(step, 1.0)]);
    }
}

#[test]
fn what_was_flushed_is_there_without_an_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = Writer::create(folder.path(), 0.0, &options()).expect("a file");
    let path = writer.path().to_owned();
    writer.scalar(scalar("a", 1, 1.0)).expect("written");
    assert_eq!(values(&path, "a"), [], "it waits");
    writer.flush().expect("written");
    writer.scalar(scalar("a", 2, 2.0)).expect("written");
    // As a kill would: nothing of the writer runs any more.
    std::mem::forget(writer);
    assert_eq!(values(&path, "a"), [(1, 1.0)]);
}

#[test]
fn a_day_of_two_samples_a_second_stays_below_50_mb_and_keeps_every_peak() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = Writer::create(folder.path(), 0.0, &options()).expect("a file");
    let tags: Vec<String> = (0..48).map(|index| format!("memory/gpu{index}_reserved_but_unallocated_gb")).collect();
    for sample in 0..172_800 {
        let value = if sample % 7200 == 0 { 1000.0 + (sample / 7200) as f64 } else { (sample % 100) as f64 };
        for tag in &tags {
            writer.scalar(scalar(tag, sample, value)).expect("written");
        }
    }
    let path = writer.path().to_owned();
    assert_eq!(writer.dropped(), DropCounts::default());
    writer.close().expect("written");
    let size = fs::metadata(&path).expect("the file").len();
    assert!(size < 48_000_000, "{size} bytes");
    assert!(size > 24_000_000, "{size} bytes: the room is used");

    let points = values(&path, &tags[47]);
    let peaks: Vec<f32> = points.iter().map(|(_, value)| *value).filter(|value| *value >= 1000.0).collect();
    assert_eq!(peaks, (0..24).map(|hour| 1000.0 + hour as f32).collect::<Vec<f32>>());
    assert!(points.is_sorted_by_key(|(step, _)| *step));
    let widest = points.windows(2).map(|pair| pair[1].0 - pair[0].0).max().expect("points");
    assert!(widest <= 2 * 240, "at most two spans of two minutes between points: {widest} samples");
    assert_eq!(points[..1000], (0..1000).map(points_at).collect::<Vec<(u64, f32)>>(), "the start in full");
}

fn points_at(sample: u64) -> (u64, f32) {
    (sample, if sample == 0 { 1000.0 } else { (sample % 100) as f32 })
}

#[test]
fn a_curve_with_few_points_is_not_thinned_by_one_with_many() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = Writer::create(folder.path(), 0.0, &Options { file_bytes: 2 << 20, ..options() }).expect("a file");
    let path = writer.path().to_owned();
    for sample in 0..100_000 {
        writer.scalar(scalar("memory/used", sample, 1.0)).expect("written");
        if sample % 1000 == 0 {
            writer.scalar(scalar("eval/psnr", sample, 30.0)).expect("written");
        }
    }
    writer.close().expect("written");
    assert_eq!(values(&path, "eval/psnr").len(), 100);
    assert!(values(&path, "memory/used").len() < 1000);
}

#[test]
fn the_rest_of_a_thinned_curve_is_written_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let bounds = Options { file_bytes: 4096, tags: 1, ..options() };
    let mut writer = Writer::create(folder.path(), 0.0, &bounds).expect("a file");
    let path = writer.path().to_owned();
    for step in 0..40 {
        writer.scalar(Scalar { keep: Retention::Last, ..scalar("a", step, step as f64) }).expect("written");
    }
    writer.flush().expect("written");
    assert_ne!(values(&path, "a").last(), Some(&(39, 39.0)));
    writer.close().expect("written");
    assert_eq!(values(&path, "a").last(), Some(&(39, 39.0)));
}

#[test]
fn texts_and_tags_without_end_are_bounded_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let bounds = Options { file_bytes: 200_000, tags: 3, ..options() };
    let mut writer = Writer::create(folder.path(), 0.0, &bounds).expect("a file");
    let path = writer.path().to_owned();
    for step in 0..1000 {
        writer.text("events/oom", step, 0.0, &"ö".repeat(20_000)).expect("written");
        writer.scalar(scalar(&format!("tag {step} {}", "x".repeat(2000)), step, 1.0)).expect("written");
    }
    assert_eq!(writer.dropped(), DropCounts { scalars: 997, texts: 999 });
    writer.close().expect("written");
    assert!(fs::metadata(&path).expect("the file").len() < 200_000);
    let cut = read(&path).into_iter().find_map(|seen| match seen {
        Seen::Text { text, .. } => Some(text),
        _ => None,
    });
    assert_eq!(cut, Some("ö".repeat(8192)));
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = folder.path().join("taken");
    fs::write(&taken, "").expect("a file");
    let error = Writer::create(&taken, 0.0, &options()).expect_err("a file is there");
    assert!(matches!(&error, Error::Create { path, .. } if *path == taken), "{error}");
    let text = error.to_string().replace(&*taken.to_string_lossy(), "taken");
    assert_eq!(text, "taken: the event file cannot be made: File exists (os error 17); the folder must be writable");
}

/// The file is cut back to its last whole record, so that what is written later can be read.
#[test]
fn a_full_disk_is_an_error_and_leaves_whole_records() {
    const FOLDER: &str = "LOWTIDE_TEST_FULL_DISK";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill(Path::new(&folder));
    }
    let folder = tempfile::tempdir().expect("a folder");
    // A limit on the size of files stands for a full disk: writing beyond it fails in the same way. It counts in blocks
    // of 512 or 1024 bytes, by the shell.
    let status = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact writer::a_full_disk_is_an_error_and_leaves_whole_records",
        ])
        .arg(std::env::current_exe().expect("this test"))
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("a shell").success());
    assert_eq!(files(folder.path()).len(), 1, "it was filled");
}

fn fill(folder: &Path) {
    let mut writer = Writer::create(folder, 0.0, &options()).expect("a file");
    let path = writer.path().to_owned();
    writer.scalar(scalar("a", 1, 1.0)).expect("it waits");
    writer.flush().expect("there is room");
    let before = fs::metadata(&path).expect("the file").len();
    for step in 0..500 {
        writer.scalar(scalar("b", step, 1.0)).expect("it waits");
    }
    let error = writer.flush().expect_err("there is no room");
    assert!(matches!(&error, Error::Write { path: named, .. } if *named == path), "{error}");
    assert_eq!(fs::metadata(&path).expect("the file").len(), before);
    writer.scalar(scalar("a", 2, 2.0)).expect("it waits");
    writer.close().expect("there is room for this one");
    assert_eq!((values(&path, "a"), values(&path, "b")), (vec![(1, 1.0), (2, 2.0)], vec![]));
}
