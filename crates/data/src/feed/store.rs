//! Where samples come from.

use lowtide_core::Bytes;

use crate::DataError;
use crate::order::{Layout, SampleId};

/// Shards of samples on a disk, all of whose sizes are known before they are read.
pub trait Store: Send + Sync + 'static {
    /// What a sample is in memory.
    type Sample: Send + Sync + 'static;

    /// How many samples each shard holds.
    fn layout(&self) -> &Layout;

    /// What a whole shard takes once it is read.
    fn shard_bytes(&self, shard: u32) -> Bytes;

    /// What one sample takes once it is read.
    fn sample_bytes(&self, sample: SampleId) -> Bytes;

    /// Into how many parts of neighbouring samples a shard is cut, each read and kept by itself where whole shards would
    /// be. A part takes as much as its samples by themselves, at the most.
    fn parts(&self, _shard: u32) -> u64 {
        1
    }

    /// What reading a shard takes at its peak, the result included.
    fn shard_cost(&self, shard: u32) -> Bytes {
        self.shard_bytes(shard)
    }

    /// What reading some samples of a shard takes for the moment, besides the samples.
    fn samples_cost(&self, _shard: u32) -> Bytes {
        Bytes::ZERO
    }

    /// Reads all samples of a shard.
    fn read_shard(&self, shard: u32) -> Result<Vec<Self::Sample>, DataError>;

    /// Reads some samples of a shard, given in rising order, that are held and let go of together.
    fn read_together(&self, shard: u32, places: &[u64]) -> Result<Vec<Self::Sample>, DataError> {
        self.read_samples(shard, places)
    }

    /// Reads some samples of a shard, given in rising order; those that lie side by side with one read. Each is given
    /// back by itself.
    fn read_samples(&self, shard: u32, places: &[u64]) -> Result<Vec<Self::Sample>, DataError>;
}
