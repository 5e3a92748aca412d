//! An index says where every sample lies, takes little, and is made anew when its files change.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use lowtide_core::Bytes;
use lowtide_data::index::{Builder, Error, FileStamp, Index, Rebuilt, open_or_build};
use lowtide_data::order::SampleId;
use lowtide_data::shard::{Compression, Dtype, Reader, Scratch, Tensor, Writer};
use tempfile::TempDir;

fn write_shard(path: &Path, samples: u64) {
    let mut writer = Writer::create(path, Compression::None).expect("a new file");
    for number in 0..samples {
        let bytes = vec![number as u8; 1 + number as usize];
        let shape = Cow::Owned(vec![bytes.len() as u64]);
        writer.append(&[Tensor { name: "x", dtype: Dtype::U8, shape, bytes: &bytes }]).expect("a good sample");
    }
    writer.finish().expect("room on the disk");
}

fn folder(shards: u32, samples: u64) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for shard in 0..shards {
        write_shard(&folder.path().join(format!("{shard:03}.shard")), samples);
    }
    folder
}

#[test]
fn every_sample_is_where_the_index_says() {
    let folder = folder(3, 5);
    let index = Index::build(folder.path()).unwrap();
    assert_eq!((index.files(), index.samples()), (3, 15));
    for shard in 0..3 {
        assert_eq!(index.name_of(shard), format!("{shard:03}.shard"));
        let reader = Reader::open(folder.path().join(index.name_of(shard))).unwrap();
        assert_eq!(index.stamp_of(shard).fingerprint, reader.fingerprint());
        for position in 0..5 {
            let place = index.place_of(SampleId { shard, index: position });
            assert_eq!((place.offset, place.bytes), reader.place_of(position).unwrap());
            let mut buffer = vec![0; place.bytes.get() as usize];
            let loaded = reader.read(position..position + 1, &mut buffer).unwrap();
            let mut scratch = Scratch::new();
            let record = loaded.record(position, &mut scratch).unwrap();
            assert_eq!(record.get("x").unwrap().bytes.len() as u64, position + 1);
        }
    }
}

#[test]
fn a_saved_index_is_used_until_a_file_changes() {
    let folder = folder(3, 5);
    let path = folder.path().join("index.bin");
    let open = || open_or_build(folder.path(), &path).unwrap();
    let shard = |name: &str| folder.path().join(name);

    let first = open();
    assert_eq!(first.rebuilt, Some(Rebuilt::Missing));
    let second = open();
    assert_eq!((second.rebuilt, &second.index), (None, &first.index));

    File::options().write(true).open(shard("001.shard")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(open().rebuilt, Some(Rebuilt::Changed { name: "001.shard".to_owned() }));
    write_shard(&shard("9.shard"), 1);
    assert_eq!(open().rebuilt, Some(Rebuilt::Added { name: "9.shard".to_owned() }));
    fs::remove_file(shard("000.shard")).unwrap();
    let removed = open();
    assert_eq!(removed.rebuilt, Some(Rebuilt::Removed { name: "000.shard".to_owned() }));
    assert_eq!(removed.index.samples(), 11);
    assert_eq!(open().rebuilt, None);
}

#[test]
fn an_index_that_cannot_be_saved_is_good_all_the_same() {
    let folder = folder(1, 2);
    let opened = open_or_build(folder.path(), &folder.path().join("no/such/folder/index.bin")).unwrap();
    assert_eq!(opened.index.samples(), 2);
    assert!(matches!(opened.unsaved, Some(Error::Io { .. })));
}

#[test]
fn every_flip_and_every_cut_of_a_saved_index_is_found() {
    let folder = folder(2, 3);
    let path = folder.path().join("index.bin");
    Index::build(folder.path()).unwrap().save(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[place] ^= 0x10;
        fs::write(&path, flipped).unwrap();
        assert!(matches!(Index::load(&path), Err(Error::Unusable { .. })), "flip at {place}");
        fs::write(&path, &whole[..place]).unwrap();
        assert!(matches!(Index::load(&path), Err(Error::Unusable { .. })), "cut to {place}");
    }
    assert!(matches!(open_or_build(folder.path(), &path).unwrap().rebuilt, Some(Rebuilt::Unusable { .. })));
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn a_folder_without_shards_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Index::build(folder.path()), Err(Error::Empty { .. })));
    write_shard(&folder.path().join("bad.shard"), 1);
    fs::write(folder.path().join("bad.shard"), "no shard").unwrap();
    assert!(matches!(Index::build(folder.path()), Err(Error::Shard(_))));
}

#[test]
fn ten_shards_are_indexed_in_a_moment() {
    let folder = folder(10, 100);
    let start = Instant::now();
    assert_eq!(Index::build(folder.path()).unwrap().samples(), 1000);
    assert!(start.elapsed() < Duration::from_secs(1));
    println!("10 shards of 100 samples: {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
}

#[test]
fn a_million_samples_take_little_and_open_fast() {
    let folder = tempfile::tempdir().unwrap();
    for samples_of_a_file in [1, 1000] {
        let mut builder = Builder::new();
        for file in 0..1_000_000 / samples_of_a_file {
            let stamp = FileStamp { bytes: Bytes(file), modified: 1, fingerprint: 2 };
            let extents = (0..samples_of_a_file).map(|sample| (sample * 64, Bytes(64)));
            builder.add(&format!("part-{file:07}/sample.pt"), stamp, extents);
        }
        let index = builder.finish();
        let path = folder.path().join("index.bin");
        index.save(&path).unwrap();
        let start = Instant::now();
        let loaded = Index::load(&path).unwrap();
        let elapsed = start.elapsed();
        assert_eq!(loaded, index);
        let each = loaded.memory().get() as f64 / 1e6;
        println!("{samples_of_a_file} samples a file: {each:.1} bytes a sample, opened in {elapsed:.2?}");
        assert!(each <= 100.0 && elapsed < Duration::from_secs(5));
    }
}
