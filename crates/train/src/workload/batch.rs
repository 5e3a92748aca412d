//! Samples that are computed together.

use lowtide_torch::tch::{Device, Tensor};

/// Samples that are computed together. Every tensor's first dimension counts samples.
#[derive(Debug)]
pub struct Batch {
    /// What the first segment takes.
    pub inputs: Vec<Tensor>,
    /// What the loss is held against.
    pub targets: Vec<Tensor>,
    /// Targets in one sample: what micro-batches are weighted by.
    pub targets_per_sample: u64,
}

impl Batch {
    /// Samples in it.
    #[must_use]
    pub fn samples(&self) -> u32 {
        let first = self.inputs.first().map_or(0, |tensor| tensor.size()[0]);
        u32::try_from(first).expect("a batch has fewer than 2^32 samples")
    }

    /// Targets in it.
    #[must_use]
    pub fn target_count(&self) -> u64 {
        u64::from(self.samples()) * self.targets_per_sample
    }

    /// The samples `start .. start + count`, sharing memory.
    #[must_use]
    pub fn piece(&self, start: u32, count: u32) -> Batch {
        let cut = |tensors: &[Tensor]| {
            tensors.iter().map(|tensor| tensor.narrow(0, i64::from(start), i64::from(count))).collect()
        };
        Batch { inputs: cut(&self.inputs), targets: cut(&self.targets), targets_per_sample: self.targets_per_sample }
    }

    /// The same samples on a device, sharing memory where they are there already.
    #[must_use]
    pub fn to_device(&self, device: Device) -> Batch {
        let there = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.to_device(device)).collect();
        let (inputs, targets) = (there(&self.inputs), there(&self.targets));
        Batch { inputs, targets, targets_per_sample: self.targets_per_sample }
    }
}
