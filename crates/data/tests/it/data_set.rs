//! A folder of samples, fed under a budget: the right data or an error, whatever happens to the files.

use std::borrow::Cow;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedError, FeedOptions, OnDamage, Store};
use lowtide_data::index::{Builder, Index, SampleFacts, SetKind};
use lowtide_data::order::{Cursor, Order, SampleId, Shuffle};
use lowtide_data::policy::Policy;
use lowtide_data::shard::{self, Compression, FieldKind, Writer, hash_of_id};
use lowtide_data::{
    BatchFile, BufferedSample, DataError, DataSet, FieldValue, OpenOptions, OpenedSet, Sample, Subset, tensors_of,
};
use lowtide_tensorfile::pages::PageCache;
use lowtide_tensorfile::{Dtype, PtTensor, PtValue, TensorFileError, View, write_pt};

use crate::kit::fixture;

const STEPS: u64 = 50;

/// The number that a sample's values are made of.
fn number(file: u64, sample: u64) -> f32 {
    (file * 1000 + sample) as f32
}

fn floats_of(shape: &[u64], value: impl Fn(u64) -> f32) -> PtValue<'static> {
    let bytes = (0..shape.iter().product()).flat_map(|place| value(place).to_le_bytes()).collect();
    PtValue::Tensor(PtTensor { dtype: Dtype::Float32, shape: shape.to_vec(), bytes: Cow::Owned(bytes) })
}

fn dict(columns: Vec<(&str, PtValue<'static>)>) -> PtValue<'static> {
    PtValue::Dict(columns.into_iter().map(|(name, value)| (PtValue::Str(name.to_owned().into()), value)).collect())
}

fn list(samples: u64, item: impl Fn(u64) -> PtValue<'static>) -> PtValue<'static> {
    PtValue::List((0..samples).map(item).collect())
}

fn batch_path(folder: &Path, file: u64) -> PathBuf {
    folder.join(format!("batch_{file:04}.pt"))
}

fn write_batch(folder: &Path, file: u64, samples: u64) {
    let batch = dict(vec![
        ("ids", list(samples, |sample| PtValue::Str(format!("{file}/{sample}").into()))),
        ("sequences", list(samples, |sample| floats_of(&[STEPS, 1], |step| number(file, sample) + step as f32 / 64.0))),
        ("scores", floats_of(&[samples], |sample| number(file, sample))),
    ]);
    write_pt(&batch_path(folder, file), &batch).unwrap();
}

fn samples_of(file: u64) -> u64 {
    4 + file % 3
}

/// The same samples as shards.
fn write_shard(folder: &Path, file: u64, compression: Compression) {
    let made = tempfile::tempdir().unwrap();
    write_batch(made.path(), file, samples_of(file));
    let batch = BatchFile::open(&batch_path(made.path(), file)).unwrap();
    let mut writer = Writer::create(folder.join(format!("{file:04}.shard")), compression).unwrap();
    for (number, sample) in batch.read_all().unwrap().iter().enumerate() {
        writer.append(&tensors_of(sample).unwrap(), Some(&format!("{file}/{number}"))).unwrap();
    }
    writer.finish().unwrap();
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Batches,
    Shards(Compression),
}

const KINDS: [Kind; 3] = [Kind::Batches, Kind::Shards(Compression::None), Kind::Shards(Compression::Zstd { level: 1 })];

fn folder(kind: Kind, files: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..files {
        match kind {
            Kind::Batches => write_batch(folder.path(), file, samples_of(file)),
            Kind::Shards(compression) => write_shard(folder.path(), file, compression),
        }
    }
    folder
}

fn open(folder: &Path) -> Arc<DataSet> {
    Arc::new(DataSet::open(folder, OpenOptions::default()).unwrap().set)
}

fn open_what_can_be(folder: &Path) -> OpenedSet {
    DataSet::open(folder, OpenOptions { on_damage: OnDamage::Skip, ..OpenOptions::default() }).unwrap()
}

fn floats(sample: &BufferedSample, name: &str) -> Vec<f32> {
    sample.get(name).and_then(|view| view.to_f32()).unwrap_or_else(|| panic!("{name} is not there: {sample:?}"))
}

#[track_caller]
fn check(id: SampleId, sample: &BufferedSample) {
    let value = number(u64::from(id.shard), id.index);
    assert_eq!(floats(sample, "scores"), [value]);
    assert_eq!(floats(sample, "sequences")[1], value + 1.0 / 64.0);
    assert_eq!(sample.get("ids"), Some(View::Text(&format!("{}/{}", id.shard, id.index))));
}

/// The budget with which so much is kept at the least.
fn budget_for(set: &impl Store, kept: u64) -> Bytes {
    let moment = (0..set.layout().shards()).map(|shard| set.samples_cost(shard)).max().unwrap();
    moment.saturating_add(Bytes(kept))
}

fn two_epochs(budget: Bytes) -> FeedOptions {
    FeedOptions { end: Some(Cursor { epoch: 2, position: 0 }), ..FeedOptions::new(budget) }
}

#[test]
fn every_sample_comes_once_an_epoch_under_any_budget() {
    for kind in KINDS {
        let folder = folder(kind, 9);
        let set = open(folder.path());
        for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 2 }, Shuffle::Full] {
            let order = Order::new(set.layout().clone(), shuffle, 11);
            for (policy, share) in [(Policy::Belady, 8), (Policy::Lru, 3), (Policy::Belady, 1)] {
                let budget = budget_for(&*set, set.bytes().get() / share + 4096);
                let options = FeedOptions { policy, ..two_epochs(budget) };
                let mut feed = Feed::start(Arc::clone(&set), &order, Cursor::default(), options).unwrap();
                let mut seen = 0;
                while let Some(fed) = feed.take().unwrap() {
                    check(fed.sample, &fed);
                    seen += 1;
                }
                assert_eq!(seen, 2 * set.layout().samples(), "{kind:?}, {shuffle:?}");
                assert!(feed.stats().peak <= budget);
            }
        }
    }
}

/// Takes what there is, changing a file after the third sample, and gives the error that ends it.
fn changed_under_way(kind: Kind, change: impl FnOnce(&Path)) -> String {
    let folder = folder(kind, 9);
    let set = open(folder.path());
    let path = set.path(7);
    let order = Order::new(set.layout().clone(), Shuffle::Sequential, 1);
    // Room for two files at a time.
    let budget = budget_for(&*set, set.bytes().get() / 4);
    let mut feed = Feed::start(Arc::clone(&set), &order, Cursor::default(), two_epochs(budget)).unwrap();
    (0..3).for_each(|_| _ = feed.take().unwrap().unwrap());
    change(&path);
    loop {
        match feed.take() {
            Ok(Some(fed)) => check(fed.sample, &fed),
            Ok(None) => panic!("the change went unnoticed"),
            Err(error) => return error.to_string().replace(path.to_str().unwrap(), "FILE"),
        }
    }
}

#[test]
fn a_file_that_changes_while_a_run_is_on_is_an_error_and_never_other_data() {
    let changed = "FILE: the file: it has changed since the run began";
    for kind in KINDS {
        let deleted = changed_under_way(kind, |path| fs::remove_file(path).unwrap());
        assert_eq!(deleted, "FILE: the file: No such file or directory (os error 2)");
        let replaced = changed_under_way(kind, |path| match kind {
            Kind::Batches => write_batch(path.parent().unwrap(), 7, 9),
            Kind::Shards(_) => _ = fs::copy(path.with_file_name("0006.shard"), path).unwrap(),
        });
        assert_eq!(replaced, changed, "{kind:?}");
        let cut = changed_under_way(kind, |path| {
            let length = path.metadata().unwrap().len();
            File::options().write(true).open(path).unwrap().set_len(length / 2).unwrap();
        });
        assert_eq!(cut, changed, "{kind:?}");
    }
}

/// Where size and time are those of the old file, the content tells.
#[test]
fn damage_far_from_the_samples_that_are_read_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = batch_path(folder.path(), 0);
    // One storage for all samples, of which one is a hundredth.
    let values = floats_of(&[100, 4096], |place| place as f32);
    write_pt(
        &path,
        &dict(vec![("values", values), ("id", list(100, |number| PtValue::Str(number.to_string().into())))]),
    )
    .expect("written");
    let set = open(folder.path());
    assert_eq!(set.read_samples(0, &[3]).expect("undamaged").len(), 1);
    drop(set);
    let mut bytes = fs::read(&path).expect("read");
    let place = bytes.len() * 3 / 4;
    bytes[place] ^= 1;
    fs::write(&path, bytes).expect("written");
    let error = open(folder.path()).read_samples(0, &[3]).expect_err("damaged").to_string();
    assert!(error.contains("checksum"), "{error}");
}

#[test]
fn another_file_under_an_old_stamp_is_found_by_what_it_holds() {
    for kind in KINDS {
        let folder = folder(kind, 4);
        let set = open(folder.path());
        // Batches 0 and 3 have as many samples; of 1 there are more.
        let (victim, other) = (set.path(0), set.path(1));
        let (length, time) = (victim.metadata().unwrap().len(), victim.metadata().unwrap().modified().unwrap());
        let mut bytes = fs::read(other).unwrap();
        bytes.resize(length as usize, 0);
        fs::write(&victim, bytes).unwrap();
        File::options().write(true).open(&victim).unwrap().set_modified(time).unwrap();
        let error = set.read_shard(0).unwrap_err().to_string();
        assert!(error.contains(victim.to_str().unwrap()), "{kind:?}: {error}");
    }
}

#[test]
fn a_damaged_file_stops_or_is_left_out() {
    let folder = folder(Kind::Batches, 4);
    let path = batch_path(folder.path(), 2);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 30]).unwrap();
    let error = DataSet::open(folder.path(), OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("batch_0002.pt"), "{error}");
    // Also from a saved index, which does not hide what was left out of it.
    for _ in 0..2 {
        let opened = open_what_can_be(folder.path());
        assert_eq!((opened.left_out.len(), opened.set.layout().shards()), (1, 3));
        assert!(opened.left_out[0].to_string().contains("batch_0002.pt"));
    }
    assert!(DataSet::open(folder.path(), OpenOptions::default()).is_err());

    // A byte flipped in a value is found when the value is read.
    let mut flipped = bytes;
    let place = flipped.windows(4).position(|window| window == number(2, 1).to_le_bytes()).unwrap();
    flipped[place] ^= 1;
    fs::write(&path, flipped).unwrap();
    let set = open(folder.path());
    let order = Order::new(set.layout().clone(), Shuffle::Sequential, 1);
    let options = FeedOptions { on_damage: OnDamage::Skip, ..two_epochs(Bytes::from_mib(1)) };
    let mut feed = Feed::start(Arc::clone(&set), &order, Cursor::default(), options).unwrap();
    let mut seen = 0;
    while let Some(fed) = feed.take().unwrap() {
        check(fed.sample, &fed);
        seen += 1;
    }
    let damaged = set.layout().samples_of(2);
    assert_eq!((seen, feed.stats().skipped), (2 * (set.layout().samples() - damaged), 2 * damaged));
}

/// A number for all that a feed gave, in order.
fn hash_of_stream(set: &Arc<DataSet>, shuffle: Shuffle, budget: Bytes, threads: usize) -> u32 {
    let order = Order::new(set.layout().clone(), shuffle, 5);
    let options = FeedOptions { threads: NonZeroUsize::new(threads).unwrap(), ..two_epochs(budget) };
    let mut feed = Feed::start(Arc::clone(set), &order, Cursor::default(), options).unwrap();
    let mut hash = 0;
    while let Some(fed) = feed.take().unwrap() {
        for (name, view) in fed.fields() {
            hash = crc32c::crc32c_append(hash, name.as_bytes());
            hash = crc32c::crc32c_append(hash, format!("{view:?}").as_bytes());
        }
    }
    hash
}

#[test]
fn the_stream_is_the_same_for_any_cache_threads_and_kind_of_file() {
    for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 3 }, Shuffle::Full] {
        let mut hashes = Vec::new();
        for kind in KINDS {
            let folder = folder(kind, 9);
            let set = open(folder.path());
            for (share, threads) in [(1, 1), (4, 3), (20, 2)] {
                let budget = budget_for(&*set, set.bytes().get() / share + 4096);
                hashes.push(hash_of_stream(&set, shuffle, budget, threads));
            }
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{shuffle:?}: {hashes:08x?}");
    }
}

#[test]
fn samples_are_found_by_their_ids() {
    for kind in KINDS {
        let folder = folder(kind, 5);
        let set = open(folder.path());
        for number in 0..set.layout().samples() {
            let sample = set.layout().sample(number);
            let id = format!("{}/{}", sample.shard, sample.index);
            assert_eq!(set.find(&id), Some(sample), "{kind:?}");
            assert_eq!(set.id_hash(sample), Some(hash_of_id(&id)));
        }
        assert_eq!(set.find("5/0"), None);
    }
}

fn fields(sample: &BufferedSample) -> Vec<(&str, View<'_>)> {
    sample.fields().collect()
}

/// The same of a sample that was read plainly.
fn views(sample: &Sample) -> Vec<(&str, View<'_>)> {
    let fields = sample.fields.iter().map(|field| match &field.value {
        FieldValue::Text(text) => (&*field.name, View::Text(text)),
        FieldValue::Array { dtype, shape, bytes } => {
            (&*field.name, View::Array { dtype: *dtype, shape: Cow::Borrowed(shape), bytes })
        }
    });
    fields.collect()
}

/// Checks every way of reading a file against the plain one.
fn check_reads(path: &Path) {
    let batch = BatchFile::open(path).unwrap();
    let expect = batch.read_all().and_then(|samples| {
        samples.iter().try_for_each(|sample| tensors_of(sample).map(drop).map_err(|field| field.in_file(path)))?;
        Ok(samples)
    });
    let opened = DataSet::of_files(&[path.to_owned()], OpenOptions::default());
    let (expect, set) = match (expect, opened) {
        (Ok(expect), Ok(opened)) => (expect, opened.set),
        // What cannot be read at all must not be read here either.
        (expect, opened) => {
            let read = opened.and_then(|opened| opened.set.read_shard(0));
            assert!(read.is_err(), "{}: {expect:?}", path.display());
            return;
        }
    };
    let all = set.read_shard(0).unwrap();
    assert!(all.iter().map(fields).eq(expect.iter().map(views)), "{}: {all:?}", path.display());
    let bytes = all.iter().map(|sample| sample.bytes().get()).sum::<u64>();
    assert!(bytes <= set.shard_bytes(0).get(), "{}: {bytes}", path.display());
    let places: Vec<u64> = (0..expect.len() as u64).filter(|place| place % 3 != 1).collect();
    let expect = || places.iter().map(|place| views(&expect[*place as usize]));
    let together = set.read_together(0, &places).unwrap();
    assert!(together.iter().map(fields).eq(expect()), "{}", path.display());
    let apart = set.read_samples(0, &places).unwrap();
    assert!(apart.iter().map(fields).eq(expect()), "{}", path.display());
    for (index, sample) in places.iter().zip(apart) {
        assert!(sample.bytes() <= set.sample_bytes(SampleId { shard: 0, index: *index }));
    }
}

#[test]
fn every_kind_of_file_is_read_as_it_is_read_plainly() {
    let mut read = 0;
    for folder in ["given", "made"] {
        for entry in fs::read_dir(fixture(folder)).unwrap() {
            let path = entry.unwrap().path();
            if BatchFile::open(&path).is_ok_and(|file| file.samples() > 0) {
                check_reads(&path);
                read += 1;
            }
        }
    }
    assert!(read > 50, "{read}");
}

/// Files that are not read as a whole: storages of all sizes, side by side and apart, and views of parts of one.
#[test]
fn large_files_are_read_as_small_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.pt");
    let samples = 40;
    let sized = |elements: fn(u64) -> u64| {
        list(samples, move |sample| floats_of(&[elements(sample)], |place| (sample * 7 + place) as f32))
    };
    let batch = dict(vec![
        ("small", sized(|sample| 1 + sample)),
        ("rows", floats_of(&[samples, 3000], |place| place as f32)),
        ("middle", sized(|sample| 3000 * (1 + sample % 5))),
        ("large", sized(|sample| if sample % 4 == 0 { 100_000 } else { 0 })),
        ("flat", floats_of(&[samples], |place| place as f32)),
    ]);
    write_pt(&path, &batch).unwrap();
    assert!(path.metadata().unwrap().len() > 4 << 20);
    check_reads(&path);
    // A single byte flipped anywhere in the values is found when everything is read.
    let whole = fs::read(&path).unwrap();
    let set = DataSet::of_files(std::slice::from_ref(&path), OpenOptions::default()).unwrap().set;
    let time = path.metadata().unwrap().modified().unwrap();
    for place in [40_000, 700_000, 2_000_000, whole.len() / 2] {
        let mut flipped = whole.clone();
        flipped[place] ^= 4;
        fs::write(&path, &flipped).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        match set.read_shard(0) {
            Err(DataError::File(TensorFileError::Checksum { file, .. })) => assert_eq!(file, path),
            other => panic!("byte {place}: {other:?}"),
        }
    }
}

#[test]
fn types_that_no_shard_holds_are_named() {
    let path = fixture("made/quantized.pt");
    let error = DataSet::of_files(&[path], OpenOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("quantized.pt: the value `") && text.contains("a sample with values of q"), "{text}");
    assert_eq!(error.hint(), Some("save it as plain numbers, such as float32 or int64"));
}

#[test]
fn ten_thousand_files_need_no_more_handles_than_one() {
    let folder = tempfile::tempdir().unwrap();
    write_batch(folder.path(), 0, 1);
    let bytes = fs::read(batch_path(folder.path(), 0)).unwrap();
    (1..10_000).for_each(|file| fs::write(batch_path(folder.path(), file), &bytes).unwrap());
    let set = open(folder.path());
    assert_eq!((set.layout().shards(), set.layout().samples()), (10_000, 10_000));
    assert_eq!(DataSet::open(folder.path(), OpenOptions::default()).unwrap().rebuilt, None);
    let order = Order::new(set.layout().clone(), Shuffle::Window { shards: 100 }, 1);
    let handles = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = handles();
    let options =
        FeedOptions { end: Some(Cursor { epoch: 0, position: 1500 }), ..FeedOptions::new(budget_for(&*set, 10 << 20)) };
    let mut feed = Feed::start(Arc::clone(&set), &order, Cursor::default(), options).unwrap();
    let mut most = 0;
    while let Some(fed) = feed.take().unwrap() {
        assert_eq!(floats(&fed, "scores"), [0.0]);
        if fed.at.position % 500 == 0 {
            most = most.max(handles());
        }
    }
    assert!(most < before + 20, "{most} handles were open, and {before} before");
}

#[test]
fn a_choice_feeds_what_was_chosen_and_nothing_else() {
    for kind in KINDS {
        let folder = folder(kind, 7);
        let set = open(folder.path());
        // None of shard 1, all of shard 2, every other sample elsewhere.
        let keep = |sample: SampleId| sample.shard != 1 && (sample.shard == 2 || sample.index.is_multiple_of(2));
        let chosen = Arc::new(Subset::new(Arc::clone(&set), keep));
        let rest = Subset::new(Arc::clone(&set), |sample| !keep(sample));
        assert_eq!(chosen.layout().samples() + rest.layout().samples(), set.layout().samples());
        assert_eq!((chosen.layout().shards(), chosen.layout().samples_of(1)), (7, 0));
        for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 3 }, Shuffle::Full] {
            let order = Order::new(chosen.layout().clone(), shuffle, 3);
            for kept in [2000, 20_000] {
                let options = two_epochs(budget_for(&*chosen, kept));
                let mut feed = Feed::start(Arc::clone(&chosen), &order, Cursor::default(), options).unwrap();
                let mut seen = Vec::new();
                while let Some(fed) = feed.take().unwrap() {
                    let sample = chosen.sample_of(fed.sample);
                    check(sample, &fed);
                    seen.push(sample);
                }
                seen.sort();
                seen.dedup();
                assert!(seen.iter().all(|sample| keep(*sample)));
                assert_eq!(seen.len() as u64, chosen.layout().samples(), "{kind:?}, {shuffle:?}");
            }
        }
    }
}

#[test]
fn a_budget_that_is_too_small_names_one_that_works() {
    for kind in KINDS {
        let folder = folder(kind, 3);
        let set = open(folder.path());
        let order = Order::new(set.layout().clone(), Shuffle::Full, 1);
        let start = |budget| Feed::start(Arc::clone(&set), &order, Cursor::default(), two_epochs(budget));
        let Err(FeedError::TooLarge { needed, .. }) = start(Bytes(100)) else { panic!("100 bytes are enough") };
        assert!(matches!(start(Bytes(needed.get() - 1)), Err(FeedError::TooLarge { .. })));
        let mut feed = start(needed).unwrap();
        let mut seen = 0;
        while let Some(fed) = feed.take().unwrap() {
            check(fed.sample, &fed);
            seen += 1;
        }
        assert_eq!(seen, 2 * set.layout().samples());
    }
}

/// Of a shard with many records, some are read without the whole index.
#[test]
fn large_samples_are_the_same_however_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for shard in 0..3_u64 {
        let mut writer = Writer::create(folder.path().join(format!("{shard}.shard")), Compression::None).unwrap();
        for sample in 0..160_u64 {
            // Those of one shape fill their pages, others do not.
            let length = if sample.is_multiple_of(5) { 65536 + 8 * sample } else { 65536 };
            let bytes: Vec<u8> =
                (0..length / 8).flat_map(|place| (shard << 40 | sample << 20 | place).to_le_bytes()).collect();
            let tensor = shard::Tensor {
                name: "x",
                kind: FieldKind::Array(Dtype::Uint8),
                shape: Cow::Owned(vec![length]),
                bytes: &bytes,
            };
            writer.append(&[tensor], None).unwrap();
        }
        writer.finish().unwrap();
    }
    let keep = OpenOptions { page_cache: PageCache::Keep, ..OpenOptions::default() };
    for options in [OpenOptions::default(), keep] {
        let set = Arc::new(DataSet::open(folder.path(), options).unwrap().set);
        assert!(set.parts(0) > 1, "a shard in one part would say nothing of parts");
        let check = |sample: &BufferedSample, at: SampleId| {
            let Some(View::Array { bytes, .. }) = sample.get("x") else { panic!("there is x") };
            let length = if at.index.is_multiple_of(5) { 65536 + 8 * at.index } else { 65536 };
            assert_eq!(bytes.len() as u64, length);
            for (place, number) in bytes.chunks_exact(8).enumerate() {
                let expect = u64::from(at.shard) << 40 | at.index << 20 | place as u64;
                assert_eq!(u64::from_le_bytes(number.try_into().unwrap()), expect, "{at:?}");
            }
        };
        let some = [0, 1, 2, 5, 50, 159];
        let read = set.read_samples(1, &some).unwrap().into_iter().chain(set.read_together(1, &some).unwrap());
        for (index, sample) in some.into_iter().chain(some).zip(read) {
            check(&sample, SampleId { shard: 1, index });
        }
        for shuffle in [Shuffle::Window { shards: 2 }, Shuffle::Full] {
            let order = Order::new(set.layout().clone(), shuffle, 1);
            let end = Some(Cursor { epoch: 2, position: 0 });
            let options = FeedOptions { end, ..FeedOptions::new(Bytes(set.bytes().get() / 2)) };
            let mut feed = Feed::start(Arc::clone(&set), &order, Cursor::default(), options).unwrap();
            let mut taken = 0;
            while let Some(fed) = feed.take().unwrap() {
                check(&fed, fed.sample);
                taken += 1;
            }
            assert_eq!(taken, 2 * 3 * 160);
            assert!(feed.stats().peak <= options.budget);
        }
    }
}

#[test]
fn the_head_of_another_record_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    fs::create_dir(&made).unwrap();
    let path = folder.path().join("0.shard");
    let write = |path: &Path, shapes: &[&[u64]]| {
        let mut writer = Writer::create(path, Compression::None).unwrap();
        for shape in shapes {
            let (name, kind, shape) = ("x", FieldKind::Array(Dtype::Uint8), Cow::Borrowed(*shape));
            writer.append(&[shard::Tensor { name, kind, shape, bytes: &[5; 4096] }], None).unwrap();
        }
        writer.finish().unwrap();
    };
    let shapes: Vec<&[u64]> = (0..32).map(|it| if it == 7 { &[64, 64][..] } else { &[4096][..] }).collect();
    write(&path, &shapes);
    write(&made.join("other.shard"), &[&[4096]]);
    // So many that none stays open, and single entries of the index are read.
    (0..256).for_each(|it| {
        fs::hard_link(made.join("other.shard"), folder.path().join(format!("1-{it}.shard"))).unwrap();
    });
    let set = DataSet::open(folder.path(), OpenOptions::default()).unwrap().set;
    let shape = |set: &DataSet| match set.read_samples(0, &[7]).map(|read| read[0].get("x").map(|x| format!("{x:?}"))) {
        Ok(Some(view)) => view.contains("[64, 64]"),
        _ => panic!("it cannot be read"),
    };
    assert!(shape(&set));
    let (mut bytes, time) = (fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    let entry = |record: usize| bytes.len() - 64 - (32 - record) * 48 + 40;
    let (one, other) = (entry(7), entry(6));
    bytes.copy_within(other..other + 8, one);
    fs::write(&path, &bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let error = set.read_samples(0, &[7]).unwrap_err().to_string();
    assert!(error.contains("record 7") && error.contains("is damaged"), "{error}");
}

#[test]
fn a_few_records_of_many_are_read_as_all_are() {
    // A few shards stay open, many do not.
    let cases = [Compression::None, Compression::Zstd { level: 1 }].into_iter().flat_map(|it| [(it, 0), (it, 256)]);
    for (compression, others) in cases {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        write_batch(&made, 0, 500);
        let batch = BatchFile::open(&batch_path(&made, 0)).unwrap().read_all().unwrap();
        let path = folder.path().join("0.shard");
        let mut writer = Writer::create(&path, compression).unwrap();
        batch.iter().for_each(|sample| _ = writer.append(&tensors_of(sample).unwrap(), None).unwrap());
        writer.finish().unwrap();
        let other = made.join("other.shard");
        let mut writer = Writer::create(&other, compression).unwrap();
        writer.append(&tensors_of(&batch[0]).unwrap(), None).unwrap();
        writer.finish().unwrap();
        (0..others).for_each(|number| fs::hard_link(&other, folder.path().join(format!("1-{number}.shard"))).unwrap());
        let open = || DataSet::open(folder.path(), OpenOptions::default()).unwrap().set;
        let set = open();
        let all = set.read_shard(0).unwrap();
        for places in [&[0][..], &[499], &[0, 1, 2, 3], &[7, 8, 300, 499], &[3, 450], &[]] {
            let expect: Vec<BufferedSample> = places.iter().map(|place| all[*place as usize].clone()).collect();
            assert_eq!(set.read_samples(0, places).unwrap(), expect, "{places:?}");
            assert_eq!(set.read_together(0, places).unwrap(), expect, "{places:?}");
        }
        assert!(set.read_samples(0, &[500]).is_err());
        // Whatever byte of the file is another one, what is read is right or an error.
        let (whole, time) = (fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
        let places = [1, 2, 400];
        let expect: Vec<BufferedSample> = places.iter().map(|place| all[*place as usize].clone()).collect();
        let index = whole.len() - 64 - 500 * 48 - 80;
        let mut errors = 0;
        for place in (0..64).chain((64..index).step_by(997)).chain((index..whole.len()).step_by(7)) {
            let mut flipped = whole.clone();
            flipped[place] ^= 0x21;
            fs::write(&path, flipped).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            // What is open is not looked at again.
            let fresh = (others == 0).then(open);
            match fresh.as_ref().unwrap_or(&set).read_samples(0, &places) {
                Ok(read) => assert_eq!(read, expect, "byte {place}"),
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 64, "{errors}");
    }
}

/// The index of a folder with one sample's fact changed, under a checksum that is right.
fn change_index(folder: &Path, kind: SetKind, change: impl Fn(&mut SampleFacts)) {
    let path = folder.join(".lowtide-index");
    let saved = Index::load(&path, kind).unwrap();
    let mut builder = Builder::default();
    for file in 0..saved.files() {
        let mut samples = saved.samples_of(file).to_vec();
        if file == 1 {
            change(&mut samples[2]);
        }
        builder.add(saved.name_of(file), saved.stamp_of(file), saved.cost_of(file), samples);
    }
    builder.finish().save(&path, kind).unwrap();
}

#[test]
fn an_index_of_other_ids_is_an_error() {
    for kind in KINDS {
        let folder = folder(kind, 3);
        let set_kind = if matches!(kind, Kind::Batches) { SetKind::Batches } else { SetKind::Shards };
        open(folder.path());
        for change in [|facts: &mut SampleFacts| facts.id_hash ^= 1, |facts: &mut SampleFacts| facts.id_hash = 0] {
            change_index(folder.path(), set_kind, change);
            let set = open(folder.path());
            let index = folder.path().join(".lowtide-index").display().to_string();
            let refusals = [set.read_shard(1), set.read_together(1, &[1, 2]), set.read_samples(1, &[2])];
            for refusal in refusals {
                let text = refusal.unwrap_err().to_string();
                let expect = "sample 2 has another id than the index of its folder says: remove ";
                assert!(text.contains(expect) && text.contains(&index), "{kind:?}: {text}");
                assert!(text.contains("0001."), "{kind:?}: {text}");
            }
            assert!(set.read_shard(0).is_ok(), "{kind:?}");
            fs::remove_file(&index).unwrap();
            assert!(open(folder.path()).read_shard(1).is_ok(), "{kind:?}");
        }
    }
}
