//! What is read and kept as one.

use crate::order::{Layout, SampleId, Shuffle};

/// What is read and kept as one, by its number: a shard, a [part](super::Parts) of one, or a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(pub u64);

/// What a [`Unit`] stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Whole shards: where the samples of a shard are needed near each other.
    Shards,
    /// Single samples: under a full shuffle each sample of a shard is needed at a time of its own, and reading whole
    /// shards would read the data set tens of times an epoch.
    Samples,
}

impl Units {
    /// What is best read as one under this shuffle.
    pub fn of(shuffle: Shuffle) -> Self {
        match shuffle {
            Shuffle::Sequential | Shuffle::Window { .. } => Self::Shards,
            Shuffle::Full => Self::Samples,
        }
    }

    /// The unit that holds `sample`.
    pub fn unit_of(self, layout: &Layout, sample: SampleId) -> Unit {
        match self {
            Self::Shards => Unit(u64::from(sample.shard)),
            Self::Samples => Unit(layout.number_of(sample)),
        }
    }
}
