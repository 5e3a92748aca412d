//! The model on its device, and how a piece of a batch is computed with it.

use std::num::NonZeroU32;

use lowtide_core::{Bytes, LineSpec, Measures};
use lowtide_settings::{Precision, Recompute, RunSettings, Spill};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Autocast, DeviceFacts, Keep, recompute};

use crate::workload::{Batch, Workload};

/// Levels of recomputing: 1 is every second segment, 2 is all of them.
pub(crate) const RECOMPUTE_LEVELS: u32 = 2;

/// A workload's segments on a device, with the kinds of numbers that they may compute in.
pub(crate) struct Model<'a> {
    pub(crate) workload: &'a dyn Workload,
    pub(crate) device: Device,
    pub(crate) parameters: Vec<Tensor>,
    pub(crate) buffers: Vec<Tensor>,
    kind: Kind,
    /// What `kind` becomes where the measures say so; `None` where they may not.
    narrow_kind: Option<Kind>,
    /// Levels of spilling: the last one is the moments, one before it the inputs of recomputed segments.
    pub(crate) spill_levels: u32,
}

/// How a piece is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    recompute: u32,
    /// Where the inputs of recomputed segments wait.
    keep: Keep,
    pub(crate) loss_chunks: NonZeroU32,
    kind: Kind,
}

impl Pass {
    /// Whether some segments are computed again in backward.
    pub(super) fn recomputes(self) -> bool {
        self.recompute > 0
    }

    /// Whether their inputs wait on the host.
    pub(super) fn spills(self) -> bool {
        self.keep == Keep::OnHost
    }
}

impl<'a> Model<'a> {
    pub(crate) fn new(settings: &RunSettings, facts: &DeviceFacts, workload: &'a dyn Workload) -> Model<'a> {
        let groups = workload.parameter_groups().into_iter();
        let parameters: Vec<Tensor> = groups.flat_map(|(_, group)| group).map(|(_, tensor)| tensor).collect();
        let kind = kind_of(settings.train.precision, facts);
        let spill_levels = spill_levels(settings, facts, 2 * bytes_of(&parameters).get());
        Model {
            workload,
            device: facts.device,
            parameters,
            buffers: workload.state().into_values().filter(|tensor| !tensor.requires_grad()).collect(),
            kind,
            narrow_kind: narrower(kind, facts).filter(|_| settings.memory.narrow),
            spill_levels,
        }
    }

    /// Numbers trained.
    pub(crate) fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|tensor| tensor.numel() as u64).sum()
    }

    /// What the parameters take, and the gradients once they are complete.
    pub(crate) fn parameter_bytes(&self) -> Bytes {
        bytes_of(&self.parameters)
    }

    /// What the device holds to compute with it: parameters and buffers.
    pub(crate) fn weight_bytes(&self) -> Bytes {
        self.parameter_bytes().saturating_add(bytes_of(&self.buffers))
    }

    /// Whether the kind of numbers may become narrower.
    pub(crate) fn may_narrow(&self) -> bool {
        self.narrow_kind.is_some()
    }

    /// Whether fp16 is used, or may be.
    pub(super) fn may_be_half(&self) -> bool {
        [Some(self.kind), self.narrow_kind].contains(&Some(Kind::Half))
    }

    /// The kind of numbers that these measures compute in.
    pub(crate) fn kind_in(&self, measures: &Measures) -> Kind {
        self.narrow_kind.filter(|_| measures.narrow).unwrap_or(self.kind)
    }

    /// How training computes a piece with these measures.
    pub(super) fn training_pass(&self, measures: &Measures) -> Pass {
        let keep = if self.spill_levels > 0 && measures.spill > 0 { Keep::OnHost } else { Keep::OnDevice };
        let Measures { recompute, loss_chunks, .. } = *measures;
        Pass { recompute, keep, loss_chunks, kind: self.kind_in(measures) }
    }

    /// How evaluation does. Without gradients nothing is kept, so there is nothing to recompute.
    pub(crate) fn evaluation_pass(&self, measures: &Measures) -> Pass {
        let (loss_chunks, kind) = (measures.eval_loss_chunks, self.kind_in(measures));
        Pass { recompute: 0, keep: Keep::OnDevice, loss_chunks, kind }
    }

    /// What `compute` makes of a piece's outputs, in the run's precision. The outputs are gone afterwards.
    pub(crate) fn with_outputs<T>(&self, batch: &Batch, pass: Pass, compute: impl FnOnce(&[Tensor]) -> T) -> T {
        let _narrow = (pass.kind != Kind::Float).then(|| Autocast::enter(self.device, pass.kind));
        let segments = self.workload.segments();
        let mut values: Vec<Tensor> = batch.inputs.iter().map(Tensor::shallow_clone).collect();
        for (index, segment) in segments.iter().enumerate() {
            values = if recomputes(pass.recompute, index, segments.len()) {
                recompute(segment, &values, pass.keep)
            } else {
                segment.run(&values)
            };
        }
        compute(&values)
    }
}

/// Levels of spilling. The CPU has no other memory to spill to; pinned memory does not pass through the host line's
/// allocator, so under a host line there is none either; and only recomputed segments have inputs to spill. The engine
/// rounds pinned memory up to a power of two; where that is more than half of the machine, nothing is spilled.
fn spill_levels(settings: &RunSettings, facts: &DeviceFacts, moments: u64) -> u32 {
    let memory = &settings.memory;
    let has_room = moments.next_power_of_two() <= facts.host_total.get() / 2;
    if !facts.device.is_cuda() || memory.spill == Spill::Off || memory.host_line != LineSpec::None || !has_room {
        return 0;
    }
    if settings.train.recompute == Recompute::Off { 1 } else { 2 }
}

/// What the tensors take.
pub(super) fn bytes_of<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> Bytes {
    Bytes(tensors.into_iter().map(|tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64).sum())
}

/// Whether a segment is recomputed. Never the last one: backward needs its activations at once, so nothing is saved.
fn recomputes(level: u32, index: usize, count: usize) -> bool {
    match level {
        _ if index + 1 == count => false,
        0 => false,
        1 => index % 2 == 1,
        _ => true,
    }
}

/// The kind that `auto` or a named precision means on this device.
///
/// `auto` takes bf16 where the card has it, else fp16 with loss scaling, else (on the CPU) fp32.
fn kind_of(asked: Precision, facts: &DeviceFacts) -> Kind {
    match (asked, facts.device) {
        (Precision::Fp32, _) | (Precision::Auto, Device::Cpu) => Kind::Float,
        (Precision::Bf16, _) => Kind::BFloat16,
        (Precision::Fp16, _) => Kind::Half,
        (Precision::Auto, _) if facts.bf16 => Kind::BFloat16,
        (Precision::Auto, _) => Kind::Half,
    }
}

/// The kind that fp32 may become when memory asks for it; `None` where it is narrow already.
fn narrower(kind: Kind, facts: &DeviceFacts) -> Option<Kind> {
    match (kind, facts.device) {
        (Kind::Float, Device::Cuda(_)) if !facts.bf16 => Some(Kind::Half),
        (Kind::Float, _) => Some(Kind::BFloat16),
        _ => None,
    }
}

/// The name of a kind in settings and files.
pub(crate) fn precision_name(kind: Kind) -> &'static str {
    match kind {
        Kind::BFloat16 => "bf16",
        Kind::Half => "fp16",
        _ => "fp32",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_recompute_more_and_never_the_last() {
        let chosen = |level| (0..5).filter(|index| recomputes(level, *index, 5)).collect::<Vec<_>>();
        assert_eq!(chosen(0), [0usize; 0]);
        assert_eq!(chosen(1), [1, 3]);
        assert_eq!(chosen(RECOMPUTE_LEVELS), [0, 1, 2, 3]);
    }
}
