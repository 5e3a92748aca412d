//! How long does it take to get a sample that is in memory, by itself and out of a feed that holds everything?
//!
//! Samples have four fields and are asked for in a random order; by itself, one field is looked up in each. The feed is
//! measured from its second epoch on, when nothing is read any more.
//!
//! Run with `make bench BENCH=how_long_is_one_sample_from_memory`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedOptions, Store};
use lowtide_data::order::{Cursor, Order, Shuffle};
use lowtide_data::shard::{Compression, FieldKind, Tensor, Writer};
use lowtide_data::{BufferedSample, DataSet, OpenOptions};
use lowtide_tensorfile::Dtype;

const SHARDS: u64 = 500;
const SAMPLES: u64 = 64;
const EPOCHS: u64 = 5;
const TARGET: f64 = 5.0;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    for shard in 0..SHARDS {
        let mut writer =
            Writer::create(folder.path().join(format!("{shard:04}.shard")), Compression::None).expect("new");
        for sample in 0..SAMPLES {
            let values = vec![sample as u8; 28 * 24 * 4];
            let tensor = |name, dtype, shape: &[u64], bytes| Tensor {
                name,
                kind: FieldKind::Array(dtype),
                shape: Cow::Owned(shape.to_vec()),
                bytes,
            };
            let tensors = [
                tensor("sequences", Dtype::Float32, &[28, 24], &values[..]),
                tensor("graphs.x", Dtype::Float32, &[16, 12], &values[..16 * 12 * 4]),
                tensor("graphs.edge_index", Dtype::Int64, &[2, 32], &values[..2 * 32 * 8]),
                tensor("scores", Dtype::Float32, &[], &values[..4]),
            ];
            writer.append(&tensors, None).expect("a good sample");
        }
        writer.finish().expect("room on the disk");
    }
    let set = Arc::new(DataSet::open(folder.path(), OpenOptions::default()).expect("good shards").set);
    alone(&set);
    for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 50 }, Shuffle::Full] {
        fed(&set, shuffle);
    }
}

fn alone(set: &DataSet) {
    let read: Vec<BufferedSample> =
        (0..set.layout().shards()).flat_map(|shard| set.read_shard(shard).expect("a good shard")).collect();
    let order = Order::new(set.layout().clone(), Shuffle::Full, 1);
    let numbers: Vec<usize> = order
        .samples_from(Cursor::default())
        .take(read.len())
        .map(|(_, sample)| set.layout().number_of(sample) as usize)
        .collect();
    let start = Instant::now();
    for number in &numbers {
        let sample = read[*number].clone();
        black_box(sample.get("scores"));
    }
    report("by itself, one field", start, numbers.len() as u64);
}

fn fed(set: &Arc<DataSet>, shuffle: Shuffle) {
    let order = Order::new(set.layout().clone(), shuffle, 1);
    let options = FeedOptions {
        end: Some(Cursor { epoch: EPOCHS, position: 0 }),
        ..FeedOptions::new(Bytes(set.bytes().get() * 2 + Bytes::from_mib(16).get()))
    };
    let mut feed = Feed::start(Arc::clone(set), &order, Cursor::default(), options).expect("room");
    let samples = set.layout().samples();
    (0..samples).for_each(|_| _ = black_box(feed.take().expect("a good sample")).is_some());
    let start = Instant::now();
    while let Some(fed) = feed.take().expect("a good sample") {
        black_box(&*fed);
    }
    report(&format!("fed, {shuffle:?}"), start, samples * (EPOCHS - 1));
}

fn report(what: &str, start: Instant, samples: u64) {
    let each = start.elapsed().as_secs_f64() * 1e6 / samples as f64;
    let verdict = if each < TARGET { "under" } else { "NOT under" };
    println!("{what:<30} {each:>6.2} us a sample, {verdict} {TARGET} us");
}
