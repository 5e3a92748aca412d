//! What the feed reads from a real folder, against simulations that share nothing with it.
//!
//! They are written by the book, over plain lists of uses, and know neither `policy` nor `simulation`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedOptions, Store};
use lowtide_data::order::{Cursor, Order, Shuffle};
use lowtide_data::policy::Policy;
use lowtide_data::{DataSet, OpenOptions};
use lowtide_tensorfile::{Dtype, PtTensor, PtValue, write_pt};
use tempfile::tempdir;

const EPOCHS: u64 = 3;
const FILES: u64 = 24;

/// Batch files of 3 to 8 samples; all samples of one size, or each of its own.
fn write_files(folder: &Path, one_size: bool) {
    for file in 0..FILES {
        let count = if one_size { 6 } else { 3 + file * 7 % 6 };
        let ids = (0..count).map(|index| PtValue::Str(format!("{file}-{index}").into())).collect();
        let values = (0..count).map(|index| {
            let length = if one_size { 2000 } else { 500 + (file * 31 + index * 17) % 60 * 50 };
            let bytes = vec![file as u8; 4 * length as usize];
            PtValue::Tensor(PtTensor { dtype: Dtype::Float32, shape: vec![length], bytes: Cow::Owned(bytes) })
        });
        let fields = vec![("ids", PtValue::List(ids)), ("values", PtValue::List(values.collect()))];
        let dict = fields.into_iter().map(|(name, value)| (PtValue::Str(name.into()), value)).collect();
        write_pt(&folder.join(format!("batch_{file:02}.pt")), &PtValue::Dict(dict)).unwrap();
    }
}

/// What is used, in order, as numbers; more of it than is counted, so that the future is known at the end too.
struct Uses {
    all: Vec<usize>,
    counted: usize,
    sizes: Vec<u64>,
}

impl Uses {
    fn of(set: &DataSet, order: &Order) -> Uses {
        let samples = set.layout().samples() as usize;
        let numbers = order.samples_from(Cursor::default()).take(samples * (EPOCHS as usize + 1));
        let (all, sizes) = if order.shuffle() == Shuffle::Full {
            let sizes = (0..samples as u64).map(|number| set.sample_bytes(set.layout().sample(number)).get());
            (numbers.map(|(_, sample)| set.layout().number_of(sample) as usize).collect(), sizes.collect())
        } else {
            let sizes = (0..FILES as u32).map(|shard| set.shard_bytes(shard).get());
            (numbers.map(|(_, sample)| sample.shard as usize).collect(), sizes.collect())
        };
        Uses { all, counted: samples * EPOCHS as usize, sizes }
    }

    /// When a unit is used next, after `now`.
    fn next(&self, unit: usize, now: usize) -> usize {
        self.all[now + 1..].iter().position(|other| *other == unit).map_or(usize::MAX, |ahead| now + 1 + ahead)
    }

    /// Belady's rule: out goes what is needed latest, the newcomer included.
    fn furthest_next_use(&self, capacity: u64) -> u64 {
        let (mut kept, mut loads): (HashMap<usize, u64>, u64) = (HashMap::new(), 0);
        for now in 0..self.counted {
            let unit = self.all[now];
            if kept.contains_key(&unit) {
                continue;
            }
            loads += 1;
            let mut after = kept.clone();
            after.insert(unit, self.sizes[unit]);
            while after.values().sum::<u64>() > capacity {
                let latest = *after.keys().max_by_key(|unit| self.next(**unit, now)).unwrap();
                after.remove(&latest);
            }
            if after.contains_key(&unit) {
                kept = after;
            }
        }
        loads
    }

    fn least_recently_used(&self, capacity: u64) -> u64 {
        let (mut kept, mut loads): (Vec<usize>, u64) = (Vec::new(), 0);
        for unit in &self.all[..self.counted] {
            if let Some(place) = kept.iter().position(|other| other == unit) {
                kept.remove(place);
            } else {
                loads += 1;
            }
            kept.push(*unit);
            while kept.iter().map(|unit| self.sizes[*unit]).sum::<u64>() > capacity {
                kept.remove(0);
            }
        }
        loads
    }
}

/// The loads of the real feed, and the bytes that it may keep.
fn feed(set: &Arc<DataSet>, order: &Order, budget: u64, policy: Policy, threads: usize) -> (u64, u64) {
    let end = Some(Cursor { epoch: EPOCHS, position: 0 });
    let threads = NonZeroUsize::new(threads).unwrap();
    let options = FeedOptions { policy, threads, end, ..FeedOptions::new(Bytes(budget)) };
    let mut feed = Feed::start(Arc::clone(set), order, Cursor::default(), options).unwrap();
    let mut taken = 0;
    while feed.take().unwrap().is_some() {
        taken += 1;
    }
    assert_eq!(taken, EPOCHS * set.layout().samples());
    (feed.stats().loads, feed.capacity().get())
}

/// Whether the largest files of a window can be kept together.
fn fits(set: &DataSet, shuffle: Shuffle, capacity: u64) -> bool {
    let Shuffle::Window { shards } = shuffle else { return true };
    let mut sizes: Vec<u64> = (0..set.layout().shards()).map(|shard| set.shard_bytes(shard).get()).collect();
    sizes.sort_unstable();
    sizes.iter().rev().take(shards as usize).sum::<u64>() <= capacity
}

fn check(one_size: bool) {
    let folder = tempdir().unwrap();
    write_files(folder.path(), one_size);
    let set = Arc::new(DataSet::open(folder.path(), OpenOptions::default()).unwrap().set);
    let whole = set.bytes().get();
    let shuffles = [1, 3, 6].map(|shards| Shuffle::Window { shards });
    let shuffles = shuffles.into_iter().chain([Shuffle::Sequential, Shuffle::Full]);
    let (mut different, mut compared) = (0, 0);
    for (shuffle, seed) in shuffles.flat_map(|shuffle| [(shuffle, 1), (shuffle, 2)]) {
        let order = Order::new(set.layout().clone(), shuffle, seed);
        let uses = Uses::of(&set, &order);
        for (percent, threads) in [(30, 1), (45, 3), (60, 2), (85, 2)] {
            let budget = whole * percent / 100;
            let (belady, capacity) = feed(&set, &order, budget, Policy::Belady, threads);
            let (lru, _) = feed(&set, &order, budget, Policy::Lru, threads);
            let what = format!("{shuffle:?}, seed {seed}, {percent} %");
            // A window that does not fit is read by samples, which the simulation of whole files knows nothing of.
            if fits(&set, shuffle, capacity) {
                assert_eq!(belady, uses.furthest_next_use(capacity), "belady: {what}");
                compared += 1;
            }
            assert_eq!(lru, uses.least_recently_used(capacity), "lru: {what}");
            different += u32::from(belady < lru);
        }
    }
    assert!(compared >= 30, "{compared} of 40");
    assert!(different > 20, "a test that could not tell the policies apart would say nothing: {different}");
}

#[test]
fn loads_are_those_of_independent_simulations() {
    check(true);
}

#[test]
fn also_where_files_and_samples_differ_in_size() {
    check(false);
}
