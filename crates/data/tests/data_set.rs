//! A folder of `.pt` batches, fed under a budget: the right data or an error, whatever happens to the files.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedError, FeedOptions, OnDamage, Store};
use lowtide_data::order::{Cursor, Order, SampleId, Shuffle};
use lowtide_data::policy::Policy;
use lowtide_data::{DataSet, Dtype, OpenOptions, Packed, PtTensor, PtValue, View, write_pt};

const STEPS: u64 = 50;

/// The number that a sample's values are made of.
fn number(file: u64, sample: u64) -> f32 {
    (file * 1000 + sample) as f32
}

fn write_batch(folder: &Path, file: u64, samples: u64) {
    let sequence = |sample| {
        let value = number(file, sample);
        let bytes: Vec<u8> = (0..STEPS).flat_map(|step| (value + step as f32 / 64.0).to_le_bytes()).collect();
        PtValue::Tensor(PtTensor { dtype: Dtype::Float32, shape: vec![STEPS, 1], bytes: Cow::Owned(bytes) })
    };
    let scores: Vec<u8> = (0..samples).flat_map(|sample| number(file, sample).to_le_bytes()).collect();
    let column = |name: &str, value| (PtValue::Str(name.to_owned().into()), value);
    let batch = PtValue::Dict(vec![
        column(
            "ids",
            PtValue::List((0..samples).map(|sample| PtValue::Str(format!("{file}/{sample}").into())).collect()),
        ),
        column("sequences", PtValue::List((0..samples).map(sequence).collect())),
        column(
            "scores",
            PtValue::Tensor(PtTensor { dtype: Dtype::Float32, shape: vec![samples], bytes: Cow::Owned(scores) }),
        ),
    ]);
    write_pt(&folder.join(format!("batch_{file:04}.pt")), &batch).unwrap();
}

fn folder(files: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    (0..files).for_each(|file| write_batch(folder.path(), file, 4 + file % 3));
    folder
}

fn floats(sample: &Packed, name: &str) -> Vec<f32> {
    sample.get(name).and_then(|view| view.to_f32()).unwrap_or_else(|| panic!("{name} is not there: {sample:?}"))
}

#[track_caller]
fn check(id: SampleId, sample: &Packed) {
    let value = number(u64::from(id.shard), id.index);
    assert_eq!(floats(sample, "scores"), [value]);
    assert_eq!(floats(sample, "sequences")[1], value + 1.0 / 64.0);
    assert_eq!(sample.get("ids"), Some(View::Text(&format!("{}/{}", id.shard, id.index))));
}

fn two_epochs(budget: Bytes) -> FeedOptions {
    FeedOptions { end: Some(Cursor { epoch: 2, position: 0 }), ..FeedOptions::new(budget) }
}

#[test]
fn every_sample_comes_once_an_epoch_under_any_budget() {
    let folder = folder(9);
    for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 2 }, Shuffle::Full] {
        for policy in [Policy::Belady, Policy::Lru] {
            let store = Arc::new(DataSet::open(folder.path(), OpenOptions::default()).unwrap().set);
            let whole = store.bytes();
            let order = Order::new(store.layout().clone(), shuffle, 11);
            for share in [8, 3, 1] {
                let budget = Bytes(whole.get() / share + 4096);
                let options = FeedOptions { policy, ..two_epochs(budget) };
                let mut feed = Feed::start(Arc::clone(&store), &order, Cursor::default(), options).unwrap();
                let mut seen = 0;
                while let Some(fed) = feed.take().unwrap() {
                    check(fed.sample, &fed);
                    seen += 1;
                }
                assert_eq!(seen, 2 * store.layout().samples());
                assert!(feed.stats().peak <= budget);
            }
        }
    }
}

/// Takes what there is, changing the folder after the third sample, and gives the error that ends it.
fn changed_under_way(change: impl FnOnce(&Path)) -> FeedError {
    let folder = folder(9);
    let store = Arc::new(DataSet::open(folder.path(), OpenOptions::default()).unwrap().set);
    let order = Order::new(store.layout().clone(), Shuffle::Sequential, 1);
    // Room for two files at a time.
    let budget = Bytes(store.bytes().get() / 4);
    let mut feed = Feed::start(Arc::clone(&store), &order, Cursor::default(), two_epochs(budget)).unwrap();
    (0..3).for_each(|_| _ = feed.take().unwrap().unwrap());
    change(&folder.path().join("batch_0007.pt"));
    loop {
        match feed.take() {
            Ok(Some(fed)) => check(fed.sample, &fed),
            Ok(None) => panic!("the change went unnoticed"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_file_that_changes_while_a_run_is_on_is_an_error_and_never_other_data() {
    let deleted = changed_under_way(|path| fs::remove_file(path).unwrap()).to_string();
    assert!(deleted.ends_with("batch_0007.pt: the file: No such file or directory (os error 2)"), "{deleted}");
    let replaced = changed_under_way(|path| write_batch(path.parent().unwrap(), 7, 9)).to_string();
    assert!(replaced.ends_with("batch_0007.pt: the file: it has changed since the run began"), "{replaced}");
    let cut = changed_under_way(|path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });
    assert!(cut.to_string().ends_with("it has changed since the run began"), "{cut}");
}

#[test]
fn a_damaged_file_stops_or_is_left_out() {
    let folder = folder(4);
    let path = folder.path().join("batch_0002.pt");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 30]).unwrap();
    let error = DataSet::open(folder.path(), OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("batch_0002.pt"), "{error}");
    let opened =
        DataSet::open(folder.path(), OpenOptions { on_damage: OnDamage::Skip, ..OpenOptions::default() }).unwrap();
    assert_eq!((opened.left_out.len(), opened.set.layout().shards()), (1, 3));

    // A byte flipped in a value is found when the value is read.
    let mut flipped = bytes;
    let place = flipped.windows(4).position(|window| window == number(2, 1).to_le_bytes()).unwrap();
    flipped[place] ^= 1;
    fs::write(&path, flipped).unwrap();
    let store = Arc::new(DataSet::open(folder.path(), OpenOptions::default()).unwrap().set);
    let order = Order::new(store.layout().clone(), Shuffle::Sequential, 1);
    let options = FeedOptions { on_damage: OnDamage::Skip, ..two_epochs(Bytes::from_mib(1)) };
    let mut feed = Feed::start(Arc::clone(&store), &order, Cursor::default(), options).unwrap();
    let mut seen = 0;
    while let Some(fed) = feed.take().unwrap() {
        check(fed.sample, &fed);
        seen += 1;
    }
    let damaged = store.layout().samples_of(2);
    assert_eq!((seen, feed.stats().skipped), (2 * (store.layout().samples() - damaged), 2 * damaged));
}

#[test]
fn a_folder_without_samples_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = DataSet::open(folder.path(), OpenOptions::default()).unwrap_err().to_string();
    assert!(error.ends_with("there are no data files in it"), "{error}");
}
