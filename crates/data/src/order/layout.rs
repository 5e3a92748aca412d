//! How many samples each shard holds.

use serde::{Deserialize, Serialize};

/// One sample: which shard it is in, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SampleId {
    /// The number of the shard.
    pub shard: u32,
    /// The place in the shard.
    pub index: u64,
}

/// How many samples each shard holds, as running sums: 8 bytes a shard, nothing a sample.
///
/// Samples are numbered through, shard after shard. A shard may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The number of the first sample of each shard, and behind them the number of all samples.
    starts: Vec<u64>,
}

impl Layout {
    /// Shards with these numbers of samples.
    ///
    /// # Panics
    ///
    /// Where there are 2^32 shards or 2^64 samples and more.
    pub fn new(samples: impl IntoIterator<Item = u64>) -> Self {
        let mut starts = vec![0];
        let mut sum = 0_u64;
        for count in samples {
            sum = sum.checked_add(count).expect("fewer than 2^64 samples");
            starts.push(sum);
        }
        assert!(u32::try_from(starts.len()).is_ok(), "more than 2^32 shards");
        Self { starts }
    }

    /// How many shards there are.
    pub fn shards(&self) -> u32 {
        (self.starts.len() - 1) as u32
    }

    /// How many samples there are in all shards.
    pub fn samples(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// How many samples this shard holds.
    ///
    /// # Panics
    ///
    /// Where there is no such shard.
    pub fn samples_of(&self, shard: u32) -> u64 {
        self.starts[shard as usize + 1] - self.starts[shard as usize]
    }

    /// The number of the first sample of this shard.
    pub(crate) fn start_of(&self, shard: u32) -> u64 {
        self.starts[shard as usize]
    }

    /// The number of this sample among all of them.
    ///
    /// # Panics
    ///
    /// Where there is no such sample.
    pub fn number_of(&self, sample: SampleId) -> u64 {
        let samples = self.samples_of(sample.shard);
        assert!(sample.index < samples, "sample {} of a shard of {samples}", sample.index);
        self.start_of(sample.shard) + sample.index
    }

    /// The sample with this number, found in time logarithmic in the number of shards.
    ///
    /// # Panics
    ///
    /// Where there is no such sample.
    pub fn sample(&self, number: u64) -> SampleId {
        assert!(number < self.samples(), "sample {number} of {}", self.samples());
        let shard = self.starts.partition_point(|start| *start <= number) - 1;
        SampleId { shard: shard as u32, index: number - self.starts[shard] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_through_all_shards() {
        let layout = Layout::new([2, 0, 3]);
        let samples: Vec<_> = (0..5).map(|number| layout.sample(number)).map(|it| (it.shard, it.index)).collect();
        assert_eq!(samples, [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]);
        assert!((0..5).all(|number| layout.number_of(layout.sample(number)) == number));
        assert_eq!((layout.shards(), layout.samples(), layout.samples_of(1)), (3, 5, 0));
        assert_eq!(Layout::new([]).samples(), 0);
    }
}
