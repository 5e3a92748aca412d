//! What the data cache of a run was asked for, and what it had to read.

use serde::{Deserialize, Serialize};

/// Figures of the data cache: the key `cache` of `summary.json`. Sizes are bytes, times are seconds, and counts are of the
/// last start of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheSummary {
    /// What leaves the cache first: `belady` or `lru`.
    pub policy: String,
    /// How samples are shuffled: `sequential`, `full`, or `window N` for N shards at a time.
    pub shuffle: String,
    /// What the cache may keep.
    pub capacity_bytes: u64,
    /// What training asked for.
    #[serde(flatten)]
    pub train: CacheReads,
    /// What training would have read with the best policy there is and a cache of this size.
    pub optimum_bytes_read: u64,
    /// What evaluation asked for.
    pub eval: CacheReads,
    /// Samples left out because their file cannot be read.
    pub skipped_samples: u64,
    /// Files left out at the start because they cannot be read.
    pub skipped_files: u64,
    /// How long the loop waited for data.
    pub waited_seconds: f64,
    /// The same as a share of the time since the data was opened.
    pub waiting_share: f64,
    /// What an epoch reads with caches of other sizes.
    pub curve: Vec<CachePoint>,
    /// What a person should know, in a sentence each.
    pub advice: Vec<String>,
}

/// What was asked of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheReads {
    /// Samples found in memory.
    pub hits: u64,
    /// Reads, each of a shard or of a sample.
    pub loads: u64,
    /// Share of the samples that were found in memory.
    pub hit_rate: f64,
    /// Bytes that the reads brought into memory.
    pub bytes_read: u64,
}

/// One size of a cache and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachePoint {
    /// What the cache may keep.
    pub capacity_bytes: u64,
    /// What an epoch then reads, once the cache is full.
    pub bytes_per_epoch: u64,
}

impl CacheReads {
    /// The figures of so many samples and reads.
    #[must_use]
    pub fn new(hits: u64, loads: u64, bytes_read: u64) -> CacheReads {
        let asked = hits + loads;
        let hit_rate = if asked == 0 { 0.0 } else { hits as f64 / asked as f64 };
        CacheReads { hits, loads, hit_rate, bytes_read }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: CacheReads) -> CacheReads {
        CacheReads::new(self.hits + other.hits, self.loads + other.loads, self.bytes_read + other.bytes_read)
    }
}

impl CacheSummary {
    /// The figures of one run behind another: counts added up, all else of the second.
    pub(crate) fn after(self, first: &CacheSummary) -> CacheSummary {
        CacheSummary {
            train: first.train.and(self.train),
            optimum_bytes_read: first.optimum_bytes_read + self.optimum_bytes_read,
            eval: first.eval.and(self.eval),
            skipped_samples: first.skipped_samples + self.skipped_samples,
            waited_seconds: first.waited_seconds + self.waited_seconds,
            ..self
        }
    }
}
