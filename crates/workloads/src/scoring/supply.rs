//! What a model is fed with: items to train on and items to evaluate on, under one budget.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lowtide_core::Bytes;
use lowtide_data::feed::{FeedOptions, Store};
use lowtide_data::order::{Order, Shuffle, Stride, window_for};
use lowtide_data::policy::Policy;
use lowtide_data::simulation::curve;
use lowtide_data::{Subset, order::SampleId};
use lowtide_generators::traces::Item;
use lowtide_torch::refuse_input;
use lowtide_train::{CachePoint, CacheSummary, PartOf};

use super::room::{Needs, Room};
use super::set::{ItemStore, Parts};
use super::settings::{DataSettings, ShuffleName, Window};
use super::stream::{Counting, Places, Stream, StreamFigures};

/// Sizes of a cache that are compared, in hundredths of the data set.
const CURVE: [u64; 5] = [10, 25, 50, 75, 100];
/// More shards than this are not simulated for the comparison.
const MOST_CURVE_SHARDS: u32 = 20_000;
/// A difference in reading that is worth a word.
const NOTABLE: f64 = 0.1;

/// Items for training and for evaluation.
pub(crate) struct Supply {
    train: Arc<Mutex<Box<dyn Places>>>,
    eval: Mutex<Box<dyn Places>>,
    /// What the loop waited for a batch that a thread makes.
    waited: Cell<Duration>,
    counts: [u64; 2],
    opened: Instant,
    policy: Policy,
    order: Order,
    /// The size of each shard, training items only.
    shard_bytes: Vec<Bytes>,
    files_left_out: u64,
}

/// Where training ends and where its order starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub(crate) seed: u64,
    /// Samples of the whole run.
    pub(crate) samples: u64,
}

impl Supply {
    /// Feeds from `parts` within `room`; with the settings in which `auto` is what was chosen for it, and what a person
    /// should know before it begins.
    pub(crate) fn begin<S: ItemStore>(
        parts: &Parts<S>,
        settings: &DataSettings,
        room: &Room,
        needs: &Needs,
        course: Course,
    ) -> (Supply, DataSettings, Vec<String>) {
        let shards = parts.train.layout().shards();
        let shard_bytes: Vec<Bytes> = (0..shards).map(|shard| parts.train.shard_bytes(shard)).collect();
        let kept = Room::kept(room.train, needs);
        let settings = chosen(settings, kept, &shard_bytes);
        let order = Order::new(parts.train.layout().clone(), shuffle(&settings), course.seed);
        let options = |budget| FeedOptions {
            policy: settings.policy,
            threads: settings.threads,
            on_damage: settings.on_damage,
            ..FeedOptions::new(budget)
        };
        let train =
            stream(parts, &parts.train, order.clone(), options(room.train), Counting::Through { end: course.samples });
        let eval_order = Order::new(parts.eval.layout().clone(), Shuffle::Sequential, course.seed);
        let eval = stream(parts, &parts.eval, eval_order, options(room.eval), Counting::Again);
        let notes = notes(parts, &settings, kept, &shard_bytes);
        let supply = Supply {
            train: Arc::new(Mutex::new(train)),
            eval: Mutex::new(eval),
            waited: Cell::default(),
            counts: parts.counts(),
            opened: Instant::now(),
            policy: settings.policy,
            order,
            shard_bytes,
            files_left_out: parts.store.files_left_out(),
        };
        (supply, settings, notes)
    }

    /// The training items at `first .. first + count`. Data that cannot be read ends the enclosing attempt.
    pub(crate) fn train(&self, first: u64, count: u32) -> Vec<Arc<Item>> {
        taken(&self.train, first, count)
    }

    /// The same for a thread that makes the batch behind the one that is computed.
    pub(crate) fn train_ahead(
        &self,
        first: u64,
        count: u32,
    ) -> impl FnOnce() -> Result<Vec<Arc<Item>>, String> + use<> {
        let places = Arc::clone(&self.train);
        move || locked(&places).look_ahead(first, count)
    }

    /// What `wait` waits for is data.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let found = wait();
        self.waited.set(self.waited.get() + begun.elapsed());
        found
    }

    /// The evaluation items at `first .. first + count`.
    pub(crate) fn eval(&self, first: u64, count: u32) -> Vec<Arc<Item>> {
        taken(&self.eval, first, count)
    }

    /// Only a part of every step is asked for, and only a part of every evaluation.
    pub(crate) fn expect(&self, train: PartOf, eval: PartOf) {
        for (places, PartOf { own, whole }) in [(&*self.train, train), (&self.eval, eval)] {
            if let Some(stride) = Stride::new(own, whole) {
                locked(places).expect(stride);
            }
        }
    }

    /// Items to evaluate on.
    pub(crate) fn eval_count(&self) -> u64 {
        self.counts[1]
    }

    /// What was asked of its cache so far.
    pub(crate) fn cache_summary(&self) -> CacheSummary {
        let (train, eval) = (locked(&self.train).figures(), locked(&self.eval).figures());
        let waited = (train.waited + eval.waited + self.waited.get()).as_secs_f64();
        let seconds = self.opened.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        let curve = self.curve(train.capacity);
        CacheSummary {
            policy: match self.policy {
                Policy::Belady => "belady".to_owned(),
                Policy::Lru => "lru".to_owned(),
            },
            shuffle: match self.order.shuffle() {
                Shuffle::Sequential => "sequential".to_owned(),
                Shuffle::Window { shards } => format!("window {shards}"),
                Shuffle::Full => "full".to_owned(),
            },
            capacity_bytes: train.capacity.get(),
            optimum_bytes_read: train.optimum.get(),
            skipped_samples: train.skipped + eval.skipped,
            skipped_files: self.files_left_out,
            waited_seconds: waited,
            waiting_share: (waited / seconds).min(1.0),
            advice: advice(&train, &curve, waited / seconds),
            curve,
            train: train.reads,
            eval: eval.reads,
        }
    }

    /// What an epoch reads with this cache and with others, smallest first.
    fn curve(&self, capacity: Bytes) -> Vec<CachePoint> {
        if self.order.layout().shards() > MOST_CURVE_SHARDS {
            return Vec::new();
        }
        let all = self.shard_bytes.iter().fold(Bytes::ZERO, |sum, bytes| sum.saturating_add(*bytes));
        let part = |hundredths: &u64| Bytes((u128::from(all.get()) * u128::from(*hundredths) / 100) as u64);
        let mut capacities: Vec<Bytes> = CURVE.iter().map(part).chain([capacity.min(all)]).collect();
        capacities.sort_unstable();
        capacities.dedup();
        let points = curve(&self.order, &self.shard_bytes, &capacities, self.policy);
        let points = points.iter().map(|point| CachePoint {
            capacity_bytes: point.capacity.get(),
            bytes_per_epoch: point.bytes_per_epoch.get(),
        });
        points.collect()
    }
}

fn locked(places: &Mutex<Box<dyn Places>>) -> MutexGuard<'_, Box<dyn Places>> {
    // A thread that panicked has pulled an item or not: places stay what they are.
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken(places: &Mutex<Box<dyn Places>>, first: u64, count: u32) -> Vec<Arc<Item>> {
    let items = locked(places).take(first, count).unwrap_or_else(|problem| refuse_input(problem));
    if items.is_empty() && count > 0 {
        refuse_input("no sample that is left can be read".to_owned());
    }
    items
}

fn stream<S: ItemStore>(
    parts: &Parts<S>,
    part: &Arc<Subset<S>>,
    order: Order,
    options: FeedOptions,
    counting: Counting,
) -> Box<dyn Places> {
    let (store, chosen) = (Arc::clone(&parts.store), Arc::clone(part));
    let decode = move |sample: &S::Sample, at: SampleId| store.item(sample, chosen.sample_of(at));
    Box::new(Stream::new(Arc::clone(part), order, options, counting, Box::new(decode)))
}

/// The settings with a window in place of `auto`: the largest that costs no reading.
fn chosen(settings: &DataSettings, kept: Bytes, shard_bytes: &[Bytes]) -> DataSettings {
    let window = match settings.window {
        Window::Auto => {
            let shards = window_for(kept, shard_bytes).unwrap_or(1).max(1);
            Window::Shards(shards.try_into().expect("it is at least 1"))
        }
        shards => shards,
    };
    DataSettings { window, ..settings.clone() }
}

fn shuffle(settings: &DataSettings) -> Shuffle {
    match (settings.shuffle, settings.window) {
        (ShuffleName::Sequential, _) => Shuffle::Sequential,
        (ShuffleName::Full, _) => Shuffle::Full,
        (ShuffleName::Window, Window::Shards(shards)) => Shuffle::Window { shards: shards.get() },
        (ShuffleName::Window, Window::Auto) => Shuffle::Window { shards: 1 },
    }
}

fn notes<S: ItemStore>(parts: &Parts<S>, settings: &DataSettings, kept: Bytes, shard_bytes: &[Bytes]) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(parts.store.repair());
    let left_out = parts.store.files_left_out();
    if left_out > 0 {
        notes.push(counted(left_out, "file cannot be read and is left out", "files cannot be read and are left out"));
    }
    if parts.unscored > 0 {
        let (one, several) = ("sample has no score and is left out", "samples have no score and are left out");
        notes.push(counted(parts.unscored, one, several));
    }
    let oversize = shard_bytes.iter().filter(|bytes| **bytes > kept).count();
    if oversize > 0 && settings.shuffle != ShuffleName::Full {
        notes.push(format!(
            "{oversize} of {} shards are larger than the cache ({kept}), so their samples are read one by one",
            shard_bytes.len()
        ));
    }
    notes
}

fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

fn advice(train: &StreamFigures, curve: &[CachePoint], waiting: f64) -> Vec<String> {
    let mut advice = Vec::new();
    let here = curve.iter().find(|point| point.capacity_bytes >= train.capacity.get()).or(curve.last());
    let Some(here) = here else { return advice };
    let reads = here.bytes_per_epoch as f64;
    let (size, read) =
        (|point: &CachePoint| Bytes(point.capacity_bytes), |point: &CachePoint| Bytes(point.bytes_per_epoch));
    let larger = curve.iter().find(|point| {
        point.capacity_bytes > here.capacity_bytes && (point.bytes_per_epoch as f64) < reads * (1.0 - NOTABLE)
    });
    let smaller = curve.iter().find(|point| {
        (point.capacity_bytes as f64) < here.capacity_bytes as f64 * (1.0 - NOTABLE)
            && point.bytes_per_epoch as f64 <= reads * (1.0 + NOTABLE / 10.0)
    });
    if let Some(point) = larger {
        advice.push(format!(
            "a cache of {} would read {} an epoch instead of {}",
            size(point),
            read(point),
            Bytes(here.bytes_per_epoch)
        ));
    } else if let Some(point) = smaller {
        advice.push(format!("a cache of {} would read as little", size(point)));
    }
    if train.optimum.get() as f64 * (1.0 + NOTABLE) < train.reads.bytes_read as f64 {
        advice.push(format!("data.policy=belady would have read {} in all", train.optimum));
    }
    if waiting > NOTABLE {
        advice.push(format!("{:.0} % of the time went into waiting for data", 100.0 * waiting));
    }
    advice
}
