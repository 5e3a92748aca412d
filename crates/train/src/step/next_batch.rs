//! The batch of the next step, made while a GPU computes this one: on threads of the workload's own first
//! ([`Workload::prepare`]), and then as tensors on the device, where those are small: they travel there beside its work.

use lowtide_core::{Bytes, Line, LineSpec};
use lowtide_settings::RunSettings;
use lowtide_torch::tch::Device;
use lowtide_torch::{TorchError, ahead, attempt};

use super::model::bytes_of;
use crate::workload::{Batch, Workload};

/// A batch of this size may be on the device ahead of its step however little memory there is.
const ALWAYS_THERE: Bytes = Bytes::from_mib(32);
/// One that takes more than a 128th of the memory is brought when it is needed: a second one would be missing elsewhere.
const MOST_THERE: u64 = 128;
/// Larger ones are not prepared on the host either, where its memory has no limit; under one they are as those on the device.
const MOST_PREPARED: Bytes = Bytes::from_mib(512);

/// What is done for the next batch before its step.
pub(super) struct NextBatch {
    /// Nothing is, where the host itself computes.
    is_on: bool,
    most_there: Bytes,
    most_prepared: Bytes,
    /// Its first sample, how many it was asked for, and the batch.
    made: Option<(u64, u32, Batch)>,
}

impl NextBatch {
    pub(super) fn new(settings: &RunSettings, device: Device) -> NextBatch {
        let most_prepared = match settings.memory.host_line {
            LineSpec::None => MOST_PREPARED,
            LineSpec::Size(_) | LineSpec::Share(_) => ALWAYS_THERE,
        };
        NextBatch { is_on: device.is_cuda(), most_there: ALWAYS_THERE, most_prepared, made: None }
    }

    /// There is this much memory to use.
    pub(super) fn stay_under(&mut self, roof: Line) {
        let part = roof.limit().map(|memory| Bytes(memory.get() / MOST_THERE));
        self.most_there = part.map_or(ALWAYS_THERE, |part| part.max(ALWAYS_THERE));
    }

    /// The batch of these samples: the one that is there, or one made now.
    pub(super) fn take(&mut self, workload: &dyn Workload, first: u64, count: u32) -> Result<Batch, TorchError> {
        match self.made.take() {
            Some((start, samples, batch)) if (start, samples) == (first, count) => Ok(batch),
            _ => attempt(|| workload.train_batch(first, count)),
        }
    }

    /// `now` is about to be computed, and the batch from `first` comes next: threads may begin with it.
    pub(super) fn prepare(&self, workload: &dyn Workload, now: &Batch, first: u64, count: u32) {
        if self.is_on && bytes_of(now.tensors()) <= self.most_prepared {
            workload.prepare(first, count);
        }
    }

    /// All of `now` was asked of the device: while it computes, the next one can be brought there. What is wrong with it is told when
    /// it is its turn.
    pub(super) fn bring(&mut self, workload: &dyn Workload, now: &Batch, first: u64, count: u32) {
        if self.is_on && bytes_of(now.tensors()) <= self.most_there {
            self.made =
                ahead(|| attempt(|| workload.train_batch(first, count))).ok().map(|batch| (first, count, batch));
        }
    }
}
