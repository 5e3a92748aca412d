//! What a feed has done.

use std::time::Duration;

use lowtide_core::Bytes;

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
