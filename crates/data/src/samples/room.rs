//! The memory that samples take, known before any is read.

use lowtide_tensorfile::pages::Memory;

use super::BufferedSample;
use super::buffered_sample::Buffer;
use crate::shard::record;

/// The room that records take side by side in a buffer.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: u64,
    records: u64,
}

impl Room {
    /// Adds a record of so many bytes, and says where it begins.
    pub(crate) fn add(&mut self, length: u64) -> u64 {
        let start = record::align(self.bytes);
        self.bytes = start.saturating_add(length);
        self.records += 1;
        start
    }

    /// How large the buffer has to be.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory of buffer and samples, names left out.
    pub(crate) fn cost(&self) -> u64 {
        let samples = self.records.saturating_mul(size_of::<BufferedSample>() as u64);
        Memory::cost(self.bytes).saturating_add(samples).saturating_add(BUFFER)
    }

    /// Memory of a record that has a buffer of its own, names left out.
    pub(crate) fn alone(length: u64) -> u64 {
        Memory::cost(length).saturating_add(size_of::<BufferedSample>() as u64).saturating_add(BUFFER)
    }

    /// Memory of the names that the samples of a buffer share.
    pub(crate) fn names_cost(names: &[String]) -> u64 {
        names.iter().map(|name| (size_of::<String>() + name.len()) as u64 + MALLOC).sum()
    }
}

/// Memory of a buffer besides its bytes: itself, how often it is shared, the lists that hold it and its samples, and
/// [what a feed knows of it](FEED).
const BUFFER: u64 = (size_of::<Buffer>() + 2 * size_of::<usize>()) as u64 + 3 * MALLOC + FEED;
/// Memory that a feed takes for each thing that it keeps: who waits for it, its bytes, its places in the lookahead and in
/// the cache. With 16,000 samples of 64 KiB, all that is resident beside their pages is 420 bytes a sample.
const FEED: u64 = 192;
/// What malloc takes besides, and rounds up to.
const MALLOC: u64 = 32;
