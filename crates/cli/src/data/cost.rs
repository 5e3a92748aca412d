//! What a run under a host line would read: the same cache that a run asks, without reading anything.

use lowtide_args::CostArgs;
use lowtide_core::{Bytes, counted, grouped};
use lowtide_data::DataSet;
use lowtide_data::feed::{Store, transient_bytes};
use lowtide_data::order::{Layout, Order, Shuffle, window_for};
use lowtide_data::policy::Policy;
use lowtide_data::simulation::curve;
use serde_json::{Value, json};

use crate::output::{Failure, Side, aligned};

/// Sizes of caches in the table, in percent of the data set.
const PERCENTS: [u64; 5] = [10, 25, 50, 75, 100];
/// Of more shards, every second, third ... stands for its neighbours: what is read depends on shares, not on numbers.
const MOST_SHARDS: usize = 2048;
/// Any order of shards costs the same, as long as it is a shuffled one.
const SEED: u64 = 1;

/// What is known of a data set.
pub(crate) struct Sizes {
    /// Samples of each shard.
    samples: Vec<u64>,
    /// What each shard takes in memory.
    shards: Vec<Bytes>,
    /// What the costliest sample takes, with what reading it takes for the moment.
    largest_sample: Bytes,
    /// What passes through memory besides the cache: what reading takes for the moment, or one sample that is not kept.
    passing: Bytes,
}

impl Sizes {
    pub(crate) fn of(set: &DataSet) -> Self {
        let numbers = 0..set.layout().shards();
        let largest_of = |shard| {
            let sizes = set.index().samples_of(shard).iter().map(|sample| sample.memory);
            sizes.max().map(|size| size.saturating_add(set.samples_cost(shard)))
        };
        let largest_sample = numbers.clone().filter_map(largest_of).max().unwrap_or_default();
        Self {
            samples: numbers.clone().map(|shard| set.layout().samples_of(shard)).collect(),
            shards: numbers.map(|shard| set.shard_bytes(shard)).collect(),
            largest_sample,
            passing: transient_bytes(set),
        }
    }

    pub(crate) fn all(&self) -> Bytes {
        self.shards.iter().fold(Bytes::ZERO, |sum, shard| sum.saturating_add(*shard))
    }

    pub(crate) fn largest_shard(&self) -> Bytes {
        self.shards.iter().copied().max().unwrap_or_default()
    }

    /// What so many shards take, the largest ones.
    fn largest(&self, count: usize) -> Bytes {
        let mut sizes = self.shards.clone();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        sizes.iter().take(count).fold(Bytes::ZERO, |sum, size| sum.saturating_add(*size))
    }

    /// What a cache takes.
    pub(crate) fn fact(&self, file: &str) -> String {
        format!("{} for everything, up to {} for one {file}", self.all(), self.largest_shard())
    }

    /// What an epoch reads with a cache of this size.
    fn reads(&self, cache: Bytes) -> Reads {
        let all = self.all();
        let Some(window) = window_for(cache, &self.shards) else {
            return Reads { cache, window: None, belady: all, lru: all };
        };
        let step = self.shards.len().div_ceil(MOST_SHARDS).max(1);
        let shards: Vec<Bytes> = self.shards.iter().copied().step_by(step).collect();
        let some = shards.iter().fold(Bytes::ZERO, |sum, shard| sum.saturating_add(*shard));
        let order = Order::new(
            Layout::new(self.samples.iter().copied().step_by(step)),
            Shuffle::Window { shards: (window / step as u32).max(1) },
            SEED,
        );
        let scaled = |bytes: Bytes, from: Bytes, to: Bytes| {
            Bytes((u128::from(bytes.get()) * u128::from(to.get()) / u128::from(from.get().max(1))) as u64)
        };
        let cache_of_some = if step == 1 { cache } else { scaled(cache, all, some) };
        let read = |policy| scaled(curve(&order, &shards, &[cache_of_some], policy)[0].bytes_per_epoch, some, all);
        Reads { cache, window: Some(window), belady: read(Policy::Belady), lru: read(Policy::Lru) }
    }
}

/// What an epoch reads, once the cache is full.
struct Reads {
    cache: Bytes,
    /// Shards that are shuffled together; `None` where not even one fits, and samples are read one by one.
    window: Option<u32>,
    belady: Bytes,
    lru: Bytes,
}

/// What a run would cost.
pub(crate) struct Cost {
    line: Bytes,
    base: Bytes,
    passing: Bytes,
    shards: u64,
    all: Bytes,
    least: Bytes,
    least_for_shards: Bytes,
    least_for_all: Bytes,
    asked: Reads,
    table: Vec<Reads>,
}

impl Cost {
    /// What the arguments ask for; nothing where they ask for nothing.
    pub(crate) fn of(sizes: &Sizes, args: &CostArgs) -> Result<Option<Self>, Failure> {
        let base = args.base;
        let besides = base.saturating_add(sizes.passing);
        let (line, cache) = match (args.host_line, args.max_cache_batches) {
            (Some(line), _) => (line, line.saturating_sub(besides)),
            (None, Some(batches)) => {
                let cache = sizes.largest(usize::try_from(batches.get()).unwrap_or(usize::MAX));
                (besides.saturating_add(cache), cache)
            }
            (None, None) => return Ok(None),
        };
        let least = base.saturating_add(sizes.largest_sample);
        if line < least {
            let text = format!(
                "a memory limit of {line} is too small: about {base} are the engine's own, and reading the largest sample \
                 takes {}",
                sizes.largest_sample
            );
            return Err(Failure::bad_input(text, Some(format!("the least that works is {least}"))));
        }
        let percent = |percent: &u64| Bytes((u128::from(sizes.all().get()) * u128::from(*percent) / 100) as u64);
        Ok(Some(Self {
            line,
            base,
            passing: sizes.passing,
            shards: sizes.shards.len() as u64,
            all: sizes.all(),
            least,
            least_for_shards: besides.saturating_add(sizes.largest_shard()),
            least_for_all: besides.saturating_add(sizes.all()),
            asked: sizes.reads(cache),
            table: PERCENTS.iter().map(|it| sizes.reads(percent(it))).collect(),
        }))
    }

    /// The least that any cache of this size can read in an epoch, where everything is needed once.
    fn bound(&self) -> Bytes {
        self.all.saturating_sub(self.asked.cache)
    }

    pub(crate) fn text(&self, file: &str) -> String {
        let window = match self.asked.window {
            None => format!("none: no {file} fits, samples are read one by one"),
            Some(window) if u64::from(window) == self.shards => format!("all {}", counted(self.shards, file)),
            Some(window) => format!("{} of {} at a time", grouped(window.into()), counted(self.shards, file)),
        };
        let epoch = if self.asked.belady.is_zero() {
            "reads nothing, once all is there".to_owned()
        } else {
            format!("reads {} of {} (lru: {}; at least: {})", self.asked.belady, self.all, self.asked.lru, self.bound())
        };
        let larger = if self.asked.belady.is_zero() {
            "a larger limit would not help".to_owned()
        } else {
            format!("what is added is not read any more; from {} on, nothing is read twice", self.least_for_all)
        };
        let least = format!("{} for single samples, {} for whole {file}s", self.least, self.least_for_shards);
        let facts = [
            ("base", format!("{}, assumed for the engine itself (--base)", self.base)),
            ("cache", format!("{}, and {} for what is being read", self.asked.cache, self.passing)),
            ("window", window),
            ("epoch", epoch),
            ("larger", larger),
            ("least", least),
        ];
        let lines: String = facts.iter().map(|(name, fact)| format!("  {name:<9}{fact}\n")).collect();
        format!("\nwith a memory limit of {} for the host\n{lines}\n{}", self.line, self.table())
    }

    fn table(&self) -> String {
        let mut lines = vec![["cache", "", "window", "read an epoch", "lru", ""].map(str::to_owned)];
        let mut rows: Vec<(&Reads, &str)> = self.table.iter().map(|reads| (reads, "")).collect();
        rows.push((&self.asked, "this limit"));
        rows.sort_by_key(|(reads, _)| reads.cache);
        lines.extend(rows.iter().map(|(reads, mark)| {
            let share = reads.cache.get() as f64 / self.all.get().max(1) as f64 * 100.0;
            let window = reads.window.map_or("-".to_owned(), |window| grouped(window.into()));
            let share = if share >= 1000.0 { "> 999 %".to_owned() } else { format!("{share:.0} %") };
            let [cache, belady, lru] = [reads.cache, reads.belady, reads.lru].map(|bytes| bytes.to_string());
            [cache, share, window, belady, lru, (*mark).to_owned()]
        }));
        aligned([Side::Right, Side::Right, Side::Right, Side::Right, Side::Right, Side::Left], &lines)
    }

    pub(crate) fn json(&self) -> Value {
        let reads = |reads: &Reads| {
            json!({
                "cache_bytes": reads.cache,
                "window": reads.window,
                "belady_bytes_per_epoch": reads.belady,
                "lru_bytes_per_epoch": reads.lru,
            })
        };
        json!({
            "host_line_bytes": self.line,
            "base_bytes": self.base,
            "passing_bytes": self.passing,
            "cache_bytes": self.asked.cache,
            "window": self.asked.window,
            "belady_bytes_per_epoch": self.asked.belady,
            "lru_bytes_per_epoch": self.asked.lru,
            "optimum_bytes_per_epoch": self.bound(),
            "data_bytes": self.all,
            "least_line_bytes": self.least,
            "least_line_for_shards_bytes": self.least_for_shards,
            "least_line_for_everything_bytes": self.least_for_all,
            "would_more_help": !self.asked.belady.is_zero(),
            "curve": self.table.iter().map(reads).collect::<Vec<_>>(),
        })
    }
}
