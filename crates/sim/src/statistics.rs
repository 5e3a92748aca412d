//! What the allocator counts, as `torch.cuda.memory_stats` shows it.

use serde::Serialize;

/// A number that goes up and down, and the most it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The most.
    pub peak: u64,
}

impl Gauge {
    pub(crate) fn add(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
    }

    pub(crate) fn take(&mut self, amount: u64) {
        self.current = self.current.checked_sub(amount).expect("no more is taken than was added");
    }

    /// One change for several, so that no peak is seen between them.
    pub(crate) fn change(&mut self, more: u64, less: u64) {
        match more >= less {
            true => self.add(more - less),
            false => self.take(less - more),
        }
    }
}

/// What the allocator counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes of blocks that tensors have.
    pub allocated: Gauge,
    /// The same with those that a stream may still use.
    pub active: Gauge,
    /// What was asked for.
    pub requested: Gauge,
    /// Bytes held from the device.
    pub reserved: Gauge,
    /// Bytes of free parts of segments that are partly in use; of expandable segments none.
    pub inactive_split: Gauge,
    /// Segments, without expandable ones.
    pub segments: Gauge,
    /// Times that all cached memory had to be given back to serve a request.
    pub retries: u64,
    /// Times that memory ran out.
    pub ooms: u64,
    /// Times that the device was asked for memory and gave it.
    pub device_allocations: u64,
    /// Times that it got some back.
    pub device_frees: u64,
}
