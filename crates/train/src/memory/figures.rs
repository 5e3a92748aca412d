//! What a run needed of memory, and how often it ran out.

use lowtide_core::Bytes;
use serde::{Deserialize, Serialize};

use super::device_memory::Reading;

/// Figures over all starts of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryFigures {
    /// Out-of-memory errors met.
    pub(crate) oom_errors: u64,
    /// Those after which the same work was done.
    pub(crate) oom_recovered: u64,
    /// The most memory taken from the device.
    pub(crate) reserved_peak: Bytes,
    /// The most memory held by tensors.
    pub(crate) allocated_peak: Bytes,
}

impl MemoryFigures {
    /// Notes the peaks.
    pub(crate) fn note(&mut self, reading: &Reading) {
        self.reserved_peak = self.reserved_peak.max(reading.reserved_peak);
        self.allocated_peak = self.allocated_peak.max(reading.allocated_peak);
    }

    pub(crate) fn forget_peaks(&mut self) {
        (self.reserved_peak, self.allocated_peak) = (Bytes::ZERO, Bytes::ZERO);
    }
}
