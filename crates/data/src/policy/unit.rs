//! What is read and kept as one.
//!
//! Shards are kept in parts of about 4 MiB (`policy::Parts`), batch files as a whole: of whole shards, up to one has no
//! room in a cache although most of it would fit. Under a full shuffle a 256th of the budget is left for samples that
//! are read ahead and not kept, or one thread would wait for the consumer to be done with each.

use std::ops::Range;

use crate::order::{Layout, SampleId, Shuffle};

/// What is read and kept as one, by its number: a shard, a part of one, or a sample.
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

/// Shards cut into parts of neighbouring samples, each read and kept by itself.
///
/// Of whole shards, up to one has no room in a cache although most of it would fit. 8 bytes a shard.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// The number of the first part of each shard, and behind them the number of all parts.
    starts: Vec<u64>,
}

impl Parts {
    /// The shards of `layout`, each in as many parts as `count` says, of about as many samples each: at least one, and no
    /// more than it has samples.
    pub(crate) fn new(layout: &Layout, count: impl Fn(u32) -> u64) -> Self {
        let mut starts = vec![0];
        let mut sum = 0;
        for shard in 0..layout.shards() {
            sum += count(shard).clamp(1, layout.samples_of(shard).max(1));
            starts.push(sum);
        }
        Self { starts }
    }

    /// How many parts there are.
    pub(crate) fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// The part that holds `sample`.
    ///
    /// # Panics
    ///
    /// Where there is no such shard.
    pub(crate) fn unit_of(&self, layout: &Layout, sample: SampleId) -> Unit {
        let start = self.starts[sample.shard as usize];
        let parts = self.starts[sample.shard as usize + 1] - start;
        let samples = u128::from(layout.samples_of(sample.shard).max(1));
        Unit(start + (u128::from(sample.index) * u128::from(parts) / samples) as u64)
    }

    /// The shard of a part, and which of its samples it holds.
    ///
    /// # Panics
    ///
    /// Where there is no such part.
    pub(crate) fn samples_of(&self, layout: &Layout, unit: Unit) -> (u32, Range<u64>) {
        assert!(unit.0 < self.len(), "part {} of {}", unit.0, self.len());
        let shard = self.starts.partition_point(|start| *start <= unit.0) - 1;
        let (start, end) = (self.starts[shard], self.starts[shard + 1]);
        let (samples, parts) = (u128::from(layout.samples_of(shard as u32)), u128::from(end - start));
        let first_of = |part: u64| (u128::from(part - start) * samples).div_ceil(parts) as u64;
        (shard as u32, first_of(unit.0)..first_of(unit.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_the_part_that_says_so() {
        let layout = Layout::new([7, 0, 3, 1, 100]);
        let parts = Parts::new(&layout, |shard| [3, 5, 9, 1, 16][shard as usize]);
        assert_eq!(parts.len(), 3 + 1 + 3 + 1 + 16);
        let mut seen = 0;
        for unit in (0..parts.len()).map(Unit) {
            let (shard, samples) = parts.samples_of(&layout, unit);
            assert!(!samples.is_empty() || layout.samples_of(shard) == 0);
            for index in samples {
                assert_eq!(parts.unit_of(&layout, SampleId { shard, index }), unit);
                seen += 1;
            }
        }
        assert_eq!(seen, layout.samples());
    }
}
