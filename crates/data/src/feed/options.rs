//! What a feed is told, what it has done, and why it may end.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lowtide_core::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::DataError;
use crate::order::{Cursor, SampleId, Share, Stride};
use crate::policy::Policy;

/// How samples are read ahead.
#[derive(Debug, Clone, Copy)]
pub struct FeedOptions {
    /// All bytes that may be held of the data: cached, being read, and in use.
    pub budget: Bytes,
    /// What leaves when room is needed. Default: what is needed latest.
    pub policy: Policy,
    /// Threads that read. Default 2.
    pub threads: NonZeroUsize,
    /// The first place that is not needed any more, so that nothing is read for it. Default: none.
    pub end: Option<Cursor>,
    /// The part of the order that is wanted, whose steps begin where the feed begins. Default: all of it.
    pub share: Option<Share>,
    /// The places that are wanted, counted from where the feed begins on through all epochs. Default: all of them.
    pub stride: Option<Stride>,
    /// What to do about a shard that cannot be read. Default: stop.
    pub on_damage: OnDamage,
}

impl FeedOptions {
    /// The defaults under a budget.
    #[must_use]
    pub fn new(budget: Bytes) -> FeedOptions {
        let threads = NonZeroUsize::new(2).expect("2 is not 0");
        FeedOptions {
            budget,
            policy: Policy::default(),
            threads,
            end: None,
            share: None,
            stride: None,
            on_damage: OnDamage::default(),
        }
    }
}

/// What to do about a shard that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDamage {
    /// End with its error.
    #[default]
    Stop,
    /// Leave its samples out and count them.
    Skip,
}

/// What a feed has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedStats {
    /// Samples that were given out and were in memory already.
    pub hits: u64,
    /// Reads, each of a shard, of a part of one, or of a sample.
    pub loads: u64,
    /// Bytes that the reads brought into memory.
    pub bytes_read: Bytes,
    /// Samples left out because their shard cannot be read.
    pub skipped: u64,
    /// How long the consumer waited for data.
    pub waited: Duration,
    /// The most bytes that were held at once.
    pub peak: Bytes,
}

/// Why there is no next sample.
#[derive(Debug, Clone, Error)]
pub enum FeedError {
    /// It cannot be read.
    #[error("{0}")]
    Data(Arc<DataError>),
    /// A sample alone takes more than the budget.
    #[error(
        "sample {} of shard {} takes {needed} while it is read, and the data may hold {budget}: give it at least \
         {needed}",
        sample.index, sample.shard
    )]
    TooLarge {
        /// Which one.
        sample: SampleId,
        /// What it takes, which is the least budget that works.
        needed: Bytes,
        /// The budget.
        budget: Bytes,
    },
    /// A thread that reads has panicked.
    #[error("a thread that reads data ended by itself")]
    ThreadLost,
}
