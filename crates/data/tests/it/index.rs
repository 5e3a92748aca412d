//! An index says what every sample takes, takes little itself, and is made anew where its files change.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use lowtide_core::Bytes;
use lowtide_data::feed::Store;
use lowtide_data::index::{Builder, FileCost, FileStamp, Index, IndexError, RebuildReason, SampleFacts, SetKind};
use lowtide_data::order::SampleId;
use lowtide_data::shard::{Compression, FieldKind, Tensor, Writer, hash_of_id};
use lowtide_data::{DataSet, OpenOptions, OpenedSet};
use lowtide_tensorfile::Dtype;
use tempfile::TempDir;

fn write_shard(path: &Path, samples: u64) {
    let mut writer = Writer::create(path, Compression::None).unwrap();
    for number in 0..samples {
        let bytes = vec![number as u8; 1 + number as usize];
        let shape = Cow::Owned(vec![bytes.len() as u64]);
        let id = format!("{}/{number}", path.file_name().unwrap().display());
        writer
            .append(&[Tensor { name: "x", kind: FieldKind::Array(Dtype::Uint8), shape, bytes: &bytes }], Some(&id))
            .unwrap();
    }
    writer.finish().unwrap();
}

fn folder(shards: u32, samples: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for shard in 0..shards {
        write_shard(&folder.path().join(format!("{shard:03}.shard")), samples);
    }
    folder
}

fn open(folder: &Path) -> OpenedSet {
    DataSet::open(folder, OpenOptions::default()).unwrap()
}

#[test]
fn every_sample_is_known_by_its_id() {
    let folder = folder(3, 5);
    let set = open(folder.path()).set;
    assert_eq!((set.layout().shards(), set.layout().samples()), (3, 15));
    for shard in 0..3 {
        for index in 0..5 {
            let (sample, id) = (SampleId { shard, index }, format!("{shard:03}.shard/{index}"));
            assert_eq!(set.id_hash(sample), Some(hash_of_id(&id)));
            assert_eq!(set.find(&id), Some(sample));
        }
    }
    assert_eq!(set.find("000.shard/5"), None);
}

#[test]
fn a_saved_index_is_used_until_a_file_changes() {
    let folder = folder(3, 5);
    let shard = |name: &str| folder.path().join(name);
    let changed = |name: &str| Some(RebuildReason::Changed { name: name.to_owned() });

    let first = open(folder.path());
    assert_eq!(first.rebuilt, Some(RebuildReason::Missing));
    let second = open(folder.path());
    assert_eq!((second.rebuilt, second.set.index()), (None, first.set.index()));

    File::options().write(true).open(shard("001.shard")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(open(folder.path()).rebuilt, changed("001.shard"));
    write_shard(&shard("9.shard"), 1);
    assert_eq!(open(folder.path()).rebuilt, changed("9.shard"));
    fs::remove_file(shard("000.shard")).unwrap();
    let removed = open(folder.path());
    assert_eq!(removed.rebuilt, Some(RebuildReason::Removed { name: "000.shard".to_owned() }));
    assert_eq!(removed.set.layout().samples(), 11);
    assert_eq!(removed.set.find("9.shard/0"), Some(SampleId { shard: 2, index: 0 }));
    assert_eq!(open(folder.path()).rebuilt, None);
}

#[test]
fn an_index_that_cannot_be_saved_is_good_all_the_same() {
    let folder = folder(1, 2);
    // A folder where the index should be: nothing can be written there, whoever runs the test.
    fs::create_dir(folder.path().join(".lowtide-index")).unwrap();
    for _ in 0..2 {
        let opened = open(folder.path());
        assert_eq!(opened.set.layout().samples(), 2);
        assert!(matches!(opened.rebuilt, Some(RebuildReason::Unusable { .. })), "{:?}", opened.rebuilt);
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn every_flip_and_every_cut_of_a_saved_index_is_found() {
    let folder = folder(2, 3);
    let path = folder.path().join(".lowtide-index");
    open(folder.path());
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[place] ^= 0x10;
        fs::write(&path, flipped).unwrap();
        assert!(matches!(Index::load(&path, SetKind::Shards), Err(IndexError::Unusable(_))), "flip at {place}");
        fs::write(&path, &whole[..place]).unwrap();
        assert!(matches!(Index::load(&path, SetKind::Shards), Err(IndexError::Unusable(_))), "cut to {place}");
    }
    assert!(matches!(open(folder.path()).rebuilt, Some(RebuildReason::Unusable { .. })));
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn a_folder_without_samples_or_with_a_broken_shard_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = |folder: &Path| DataSet::open(folder, OpenOptions::default()).unwrap_err().to_string();
    assert!(error(folder.path()).ends_with("there are no data files in it"));
    write_shard(&folder.path().join("none.shard"), 0);
    assert!(error(folder.path()).ends_with("there are no samples in it"));
    fs::write(folder.path().join("bad.shard"), "no shard").unwrap();
    assert!(error(folder.path()).contains("bad.shard is not a Lowtide shard"));
    fs::write(folder.path().join("other.pt"), "").unwrap();
    assert!(error(folder.path()).contains("a data set has one kind"));
}

#[test]
fn a_million_samples_take_less_than_a_hundred_bytes_each() {
    let folder = tempfile::tempdir().unwrap();
    for samples_of_a_file in [1, 1000] {
        let mut builder = Builder::default();
        for file in 0..1_000_000 / samples_of_a_file {
            let stamp = FileStamp { bytes: Bytes(file), modified: 1, fingerprint: 2 };
            let cost = FileCost { memory: Bytes(file), reading: Bytes(7) };
            let samples = (0..samples_of_a_file).map(|sample| SampleFacts { memory: Bytes(64), id_hash: sample });
            builder.add(&format!("part-{file:07}/sample.pt"), stamp, cost, samples);
        }
        let index = builder.finish();
        let path = folder.path().join("index.bin");
        index.save(&path, SetKind::Batches).unwrap();
        let loaded = Index::load(&path, SetKind::Batches).unwrap();
        assert_eq!(loaded, index);
        let each = loaded.memory().get() as f64 / 1e6;
        assert!(each <= 100.0, "{each}");
        assert_eq!(Index::load(&path, SetKind::Shards), Err(IndexError::Unusable("it is of files of another kind")));
    }
}
