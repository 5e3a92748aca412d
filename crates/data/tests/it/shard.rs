//! What is written to a shard is read back, and nothing else ever is.

use std::borrow::Cow;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lowtide_data::feed::Store;
use lowtide_data::shard::{Compression, Error, FieldKind, Reader, Scratch, Tensor, Writer};
use lowtide_data::{BufferedSample, DataSet, OpenOptions};
use lowtide_tensorfile::Dtype;
use proptest::prelude::*;
use tempfile::TempDir;

const U8: FieldKind = FieldKind::Array(Dtype::Uint8);
const I64: FieldKind = FieldKind::Array(Dtype::Int64);
const F16: FieldKind = FieldKind::Array(Dtype::Float16);
const F32: FieldKind = FieldKind::Array(Dtype::Float32);

/// A tensor that owns what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    name: String,
    kind: FieldKind,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

impl Owned {
    fn new(name: &str, kind: FieldKind, shape: &[u64], fill: u8) -> Self {
        let bytes = vec![fill; kind.bytes_of(shape).expect("small") as usize];
        Self { name: name.to_owned(), kind, shape: shape.to_vec(), bytes }
    }

    fn view(&self) -> Tensor<'_> {
        Tensor { name: &self.name, kind: self.kind, shape: Cow::Borrowed(&self.shape), bytes: &self.bytes }
    }

    fn of(tensor: &Tensor<'_>) -> Self {
        let (name, shape) = (tensor.name.to_owned(), tensor.shape.to_vec());
        Self { name, kind: tensor.kind, shape, bytes: tensor.bytes.to_vec() }
    }
}

type Sample = Vec<Owned>;

fn write(path: &Path, samples: &[Sample], compression: Compression) {
    let mut writer = Writer::create(path, compression).expect("nobody else writes it");
    for (number, sample) in samples.iter().enumerate() {
        let views: Vec<_> = sample.iter().map(Owned::view).collect();
        assert_eq!(writer.append(&views, None).expect("a good sample"), number as u64);
    }
    let finished = writer.finish().expect("room on the disk");
    assert_eq!(finished.records, samples.len() as u64);
    assert_eq!(finished.bytes.get(), fs::metadata(path).expect("it is there").len());
}

/// All samples of a shard, read in runs of `run` records.
fn read(path: &Path, run: u64) -> Result<Vec<Sample>, Error> {
    let reader = Reader::open(path)?;
    let mut scratch = Scratch::default();
    let mut samples = Vec::new();
    for first in (0..reader.len()).step_by(run as usize) {
        let records = first..(first + run).min(reader.len());
        let mut buffer = vec![0; reader.bytes_of(records.clone())?.get() as usize];
        let loaded = reader.read(records.clone(), &mut buffer)?;
        for record in records {
            samples.push(loaded.record(record, &mut scratch)?.tensors().iter().map(Owned::of).collect());
        }
    }
    Ok(samples)
}

fn some_samples() -> Vec<Sample> {
    vec![
        vec![Owned::new("tokens", I64, &[5], 7), Owned::new("label", U8, &[], 1)],
        vec![],
        vec![Owned::new("label", U8, &[], 2), Owned::new("image", F32, &[2, 3, 4], 3)],
        vec![Owned::new("empty", F16, &[0, 9], 0)],
    ]
}

fn shard(samples: &[Sample], compression: Compression) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.shard");
    write(&path, samples, compression);
    (folder, path)
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let kind = prop::sample::select((0..).map_while(FieldKind::from_number).collect::<Vec<_>>());
    let shape = prop::collection::vec(0_u64..5, 0..4);
    let tensor = ("[a-zé]{0,6}", kind, shape, any::<u8>());
    prop::collection::vec(tensor, 0..5).prop_map(|tensors| {
        let mut sample: Sample = Vec::new();
        for (name, kind, shape, fill) in tensors {
            if sample.iter().all(|other| other.name != name) {
                let is_text = kind == FieldKind::Text;
                let shape = if is_text { &[u64::from(fill)][..] } else { &shape };
                let mut owned = Owned::new(&name, kind, shape, fill);
                owned.bytes.iter_mut().enumerate().for_each(|(step, byte)| *byte ^= ((step * step) >> 3) as u8);
                if is_text {
                    owned.bytes.iter_mut().for_each(|byte| *byte &= 0x7f);
                }
                sample.push(owned);
            }
        }
        sample
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_written_is_read(
        samples in prop::collection::vec(any_sample(), 0..12), run in 1_u64..6, level in -1_i32..4,
    ) {
        let compression = if level < 0 { Compression::None } else { Compression::Zstd { level } };
        let (_folder, path) = shard(&samples, compression);
        prop_assert_eq!(read(&path, run).expect("a good shard"), samples);
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.shard");
        fs::write(&path, bytes).expect("room on the disk");
        prop_assert!(Reader::open(&path).is_err());
    }
}

/// Samples of which some fill pages, and bytes that no compression makes smaller.
fn large_samples() -> Vec<Sample> {
    let noise = |shape: &[u64], seed: u64| {
        let mut owned = Owned::new("x", U8, shape, 0);
        let mut state = seed;
        owned.bytes.iter_mut().for_each(|byte| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        });
        owned
    };
    let label = |label| Owned::new("label", U8, &[], label);
    vec![
        vec![noise(&[65536], 1)],
        vec![noise(&[65536], 2)],
        vec![noise(&[100], 3), label(1)],
        vec![noise(&[2, 32768], 4)],
        vec![noise(&[4096], 5)],
        vec![noise(&[4097], 6)],
        vec![noise(&[200_000], 7), label(2)],
    ]
}

#[test]
fn records_that_fill_pages_begin_at_one_and_have_their_heads_in_the_index() {
    for compression in [Compression::None, Compression::Zstd { level: 1 }] {
        let samples = large_samples();
        let (_folder, path) = shard(&samples, compression);
        let reader = Reader::open(&path).unwrap();
        let places: Vec<(u64, u64)> =
            (0..reader.len()).map(|it| reader.place_of(it).unwrap()).map(|(at, bytes)| (at, bytes.get())).collect();
        let page = 4096;
        assert_eq!(places[0], (page, 65536));
        assert_eq!(places[1], (17 * page, 65536));
        assert_eq!(places[2].0, 33 * page);
        assert_eq!(places[3], (34 * page, 65536));
        assert_eq!(places[4], (50 * page, 4096));
        assert_eq!(places[5].0, 51 * page, "behind a whole page");
        assert!(places[5].1 > 4097, "with its head");
        assert_eq!(places[6], (53 * page, 200_001), "a little of the last page is not used");
        let names = 2 + 1 + 2 + 5;
        let heads = [1, 2, 1, 1].map(|dimensions| 4 + 14 + 8 * dimensions).iter().sum::<u64>() + 14;
        let index = 24 + names + heads + 7 * 48;
        let end = (53 * page + 200_001_u64).next_multiple_of(64);
        assert_eq!(reader.file_bytes().get(), end + index + 64, "each head is written once");
        for run in [1, 2, 7] {
            assert_eq!(read(&path, run).unwrap(), samples);
        }
    }
}

#[test]
fn flipped_bytes_of_large_records_and_their_heads_are_found() {
    let samples = large_samples();
    let (folder, path) = shard(&samples, Compression::None);
    let whole = fs::read(&path).unwrap();
    let flipped = folder.path().join("b.shard");
    let index = whole.len() - 64 - 7 * 48 - 200;
    let mut errors = 0;
    for place in (4096..index).step_by(9973).chain(index..whole.len()) {
        let mut bytes = whole.clone();
        bytes[place] ^= 4;
        fs::write(&flipped, &bytes).unwrap();
        match read(&flipped, 7) {
            Err(_) => errors += 1,
            Ok(read) => assert_eq!(read, samples, "a flip at {place} goes unnoticed"),
        }
    }
    assert!(errors > 600, "{errors}");
}

/// A file of version 2, by its description.
fn version_2(records: &[&[u8]], names: &[&str]) -> Vec<u8> {
    let checksum = |bytes: &[u8]| crc32c::crc32c(bytes).to_le_bytes();
    let mut file = b"\x89LTS\r\n\x1a\n\x02\0\0\0".to_vec();
    file.resize(60, 0);
    file.extend(checksum(&file.clone()));
    let mut index = Vec::new();
    index.extend((names.len() as u64).to_le_bytes());
    index.extend((records.len() as u64).to_le_bytes());
    for name in names {
        index.extend((name.len() as u16).to_le_bytes());
        index.extend(name.as_bytes());
    }
    let front = checksum(&index);
    for record in records {
        for number in [file.len(), record.len(), record.len()] {
            index.extend((number as u64).to_le_bytes());
        }
        index.extend(checksum(record));
        index.extend([0; 12]);
        file.extend(*record);
        file.resize(file.len().next_multiple_of(64), 0);
    }
    let mut footer = Vec::new();
    for number in [file.len(), index.len(), records.len(), file.len() + index.len() + 64] {
        footer.extend((number as u64).to_le_bytes());
    }
    footer.extend(checksum(&index));
    footer.extend(front);
    footer.resize(56, 0);
    footer.extend(checksum(&footer.clone()));
    footer.extend(b"LTSE");
    [file, index, footer].concat()
}

#[test]
fn version_2_is_read() {
    let record = |bytes: &[u8]| {
        let mut record = 1_u32.to_le_bytes().to_vec();
        record.extend([0, 0, 0, 0, 1, 1]);
        record.extend(64_u64.to_le_bytes());
        record.extend((bytes.len() as u64).to_le_bytes());
        record.resize(64, 0);
        record.extend(bytes);
        record
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.shard");
    let (one, other) = (record(&[7; 65536]), record(&[1, 2, 3]));
    fs::write(&path, version_2(&[&one, &other], &["x"])).unwrap();
    let expect = [(65536, 7), (3, 1)].map(|(length, fill)| vec![Owned::new("x", U8, &[length], fill)]);
    let mut expect = expect.to_vec();
    expect[1][0].bytes = vec![1, 2, 3];
    assert_eq!(read(&path, 1).unwrap(), expect);
    assert_eq!(read(&path, 2).unwrap(), expect);
    let set = DataSet::open(folder.path(), OpenOptions::default()).unwrap().set;
    let sizes =
        |samples: Vec<BufferedSample>| samples.iter().map(|sample| sample.bytes().get() / 65536).collect::<Vec<_>>();
    assert_eq!(sizes(set.read_shard(0).unwrap()), [1, 0]);
    assert_eq!(set.read_samples(0, &[0, 1]).unwrap(), set.read_shard(0).unwrap());
}

#[test]
fn compression_makes_smaller_and_only_where_it_does() {
    let samples = [vec![Owned::new("x", F32, &[1000], 1)], vec![Owned::new("x", U8, &[], 1)]];
    let (_one, path) = shard(&samples, Compression::Zstd { level: 3 });
    let reader = Reader::open(&path).unwrap();
    let sizes = |record| (reader.place_of(record).unwrap().1.get(), reader.unpacked_bytes_of(record).unwrap().get());
    assert!(sizes(0).0 < 100 && sizes(0).1 == 64 + 4000, "{:?}", sizes(0));
    assert!(sizes(1).0 <= sizes(1).1);
    assert_eq!(read(&path, 2).unwrap(), samples);
}

#[test]
fn every_flipped_byte_is_found_or_harmless() {
    for compression in [Compression::None, Compression::Zstd { level: 3 }] {
        let samples = some_samples();
        let (folder, path) = shard(&samples, compression);
        let whole = fs::read(&path).unwrap();
        let (flipped, mut harmless) = (folder.path().join("b.shard"), 0);
        for place in 0..whole.len() {
            for mask in [1, 0x80, 0xFF] {
                let mut bytes = whole.clone();
                bytes[place] ^= mask;
                fs::write(&flipped, &bytes).unwrap();
                match read(&flipped, 3) {
                    Err(_) => {}
                    Ok(read) => {
                        assert_eq!(read, samples, "a flip at {place} goes unnoticed");
                        assert_eq!(whole[place], 0, "only padding may be flipped");
                        harmless += 1;
                    }
                }
            }
        }
        assert!(harmless < 3 * 64 * samples.len(), "{harmless} flips were harmless");
    }
}

#[test]
fn every_cut_is_an_error() {
    let (folder, path) = shard(&some_samples(), Compression::None);
    let whole = fs::read(&path).unwrap();
    let cut = folder.path().join("b.shard");
    for len in 0..whole.len() {
        fs::write(&cut, &whole[..len]).unwrap();
        assert!(Reader::open(&cut).is_err(), "cut to {len} of {}", whole.len());
    }
    let mut longer = whole.clone();
    longer.extend([0; 64]);
    fs::write(&cut, &longer).unwrap();
    assert!(Reader::open(&cut).is_err());
}

/// The message of an error, without the folder.
fn message(error: &Error, folder: &TempDir) -> String {
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn errors_name_file_record_offset_and_checksums() {
    let (folder, path) = shard(&some_samples(), Compression::None);
    let whole = fs::read(&path).unwrap();
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        message(&read(&path, 1).unwrap_err(), &folder)
    };
    let flip = |place: usize| {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        bytes
    };
    let checksum = |bytes: &[u8]| format!("{:08x}", crc32c::crc32c(bytes));
    assert_eq!(open(b""), "a.shard is not a Lowtide shard: it begins with []");
    assert_eq!(open(b"PK\x03\x04"), "a.shard is not a Lowtide shard: it begins with [50, 4b, 03, 04]");
    assert_eq!(open(&whole[..100]), "a.shard should have 128 bytes and has 100");
    assert_eq!(open(&whole[..200]), "a.shard has no end: it was cut off at 200 bytes, or its end was overwritten");
    let without_middle = [&whole[..128], &whole[192..]].concat();
    let (expected, found) = (whole.len(), without_middle.len());
    assert_eq!(open(&without_middle), format!("a.shard should have {expected} bytes and has {found}"));
    let record = &flip(130)[64..64 + 129];
    assert_eq!(
        open(&flip(130)),
        format!(
            "record 0 of a.shard at offset 64 is damaged: its checksum should be {} and is {}",
            checksum(&whole[64..64 + 129]),
            checksum(record)
        )
    );
    let (header, flipped) = (&whole[..60], flip(20));
    assert_eq!(
        open(&flipped),
        format!(
            "the header of a.shard at offset 0 is damaged: its checksum should be {} and is {}",
            checksum(header),
            checksum(&flipped[..60])
        )
    );
    let mut newer = whole.clone();
    newer[8] = 9;
    let header_checksum = crc32c::crc32c(&newer[..60]);
    newer[60..64].copy_from_slice(&header_checksum.to_le_bytes());
    assert_eq!(open(&newer), "a.shard has version 9 of the shard format, this program reads versions 2 to 3");
}

#[test]
fn a_file_that_changes_while_it_is_open_is_told_from_a_damaged_one() {
    let (folder, path) = shard(&some_samples(), Compression::None);
    let reader = Reader::open(&path).unwrap();
    let mut buffer = vec![0; reader.bytes_of(0..1).unwrap().get() as usize];
    let bytes = fs::metadata(&path).unwrap().len();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[9], 150).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let error = message(&reader.read(0..1, &mut buffer).unwrap_err(), &folder);
    assert_eq!(error, format!("a.shard was changed while it was being read: it had {bytes} bytes and has {bytes}"));
    file.set_len(100).unwrap();
    let error = message(&reader.read(0..1, &mut buffer).unwrap_err(), &folder);
    assert_eq!(error, format!("a.shard was changed while it was being read: it had {bytes} bytes and has 100"));
}

#[test]
fn a_file_that_is_replaced_has_another_fingerprint() {
    let (_one, path) = shard(&some_samples(), Compression::None);
    let mut others = some_samples();
    others[0][0].bytes[0] ^= 1;
    let (_other, other_path) = shard(&others, Compression::None);
    let (one, other) = (Reader::open(&path).unwrap(), Reader::open(&other_path).unwrap());
    assert_eq!(one.file_bytes(), other.file_bytes());
    assert_ne!(one.fingerprint(), other.fingerprint());
}

#[test]
fn wrong_requests_are_errors() {
    let (folder, path) = shard(&some_samples(), Compression::None);
    let reader = Reader::open(&path).unwrap();
    let told = |error: Error| message(&error, &folder);
    assert_eq!(told(reader.bytes_of(3..5).unwrap_err()), "a.shard has 4 records, and record 4 was asked for");
    assert_eq!(
        told(reader.read(0..1, &mut [0; 7]).unwrap_err()),
        "129 bytes are read from a.shard, and the buffer has 7"
    );
    assert!(reader.read(2..2, &mut []).unwrap().records().is_empty());
    let mut buffer = vec![0; reader.bytes_of(0..4).unwrap().get() as usize];
    reader.read(0..4, &mut buffer).unwrap();
    let again = reader.view(0..4, &buffer).unwrap();
    let mut scratch = Scratch::default();
    assert_eq!(again.record(2, &mut scratch).unwrap().get("label").unwrap().bytes, [2]);
    assert!(again.record(4, &mut scratch).is_err());
}

#[test]
fn wrong_samples_are_refused_and_leave_the_shard_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.shard");
    let mut writer = Writer::create(&path, Compression::None).unwrap();
    let good = Owned::new("x", F32, &[2], 1);
    let short = Owned { bytes: vec![1; 7], ..good.clone() };
    let told = message(&writer.append(&[short.view()], None).unwrap_err(), &folder);
    assert_eq!(
        told,
        "a sample cannot be written to a.shard: tensor `x` has 7 bytes, and its shape [2] of float32 another number"
    );
    let quantized = Owned { kind: FieldKind::Array(Dtype::Quint8), bytes: vec![1; 2], ..good.clone() };
    let told = message(&writer.append(&[quantized.view()], None).unwrap_err(), &folder);
    assert_eq!(
        told,
        "a sample cannot be written to a.shard: tensor `x` has values of quint8, which a shard does not hold"
    );
    let told = message(&writer.append(&[good.view(), good.view()], None).unwrap_err(), &folder);
    assert_eq!(told, "a sample cannot be written to a.shard: tensor `x` comes twice");
    writer.append(&[good.view()], None).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&path, 1).unwrap(), [[good]]);
}

#[test]
fn a_shard_is_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.shard");
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    fs::write(folder.path().join(".a.shard.partial"), "left by a crash, longer than what comes").unwrap();
    let writer = Writer::create(&path, Compression::None).unwrap();
    assert!(matches!(Writer::create(&path, Compression::None), Err(Error::Busy { .. })));
    assert_eq!(names(), [".a.shard.partial"]);
    drop(writer);
    assert!(names().is_empty());
    write(&path, &some_samples(), Compression::None);
    assert_eq!(names(), ["a.shard"]);
    assert!(matches!(Writer::create(&path, Compression::None), Err(Error::Exists { .. })));
    assert_eq!(read(&path, 4).unwrap(), some_samples());
}
