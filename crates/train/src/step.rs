//! One step as a transaction: all of it happens, or none of it.
//!
//! A step changes parameters, moments, the loss scale, the random state, buffers and the data cursor. Forward and backward
//! change only gradients, random state and buffers, and those are put back when they fail. The optimizer's update comes
//! last, in place, without allocating; once it has begun, finishing it is all that is left.

use lowtide_core::{Measures, Phase, pieces};
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{AdamW, Autocast, GradScaler, Keep, Segment, TorchError, Unscaled, attempt, gradients, recompute};

use crate::workload::{Batch, Workload};

/// What a step trains: everything it may change.
pub(crate) struct State<'a> {
    pub(crate) workload: &'a dyn Workload,
    pub(crate) device: Device,
    pub(crate) parameters: Vec<Tensor>,
    /// The parameters' names, in the same order.
    pub(crate) parameter_names: Vec<String>,
    pub(crate) buffers: Vec<Tensor>,
    pub(crate) optimizer: AdamW,
    pub(crate) scaler: Option<GradScaler>,
    pub(crate) kind: Kind,
    pub(crate) clip: Option<f64>,
    pub(crate) targets_per_sample: u64,
}

/// A step that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Made {
    /// The mean loss over all targets.
    pub(crate) loss: f64,
    /// Whether the loss scale overflowed, so that the parameters were left alone.
    pub(crate) skipped: bool,
}

/// A step that failed and left nothing behind.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) phase: Phase,
    pub(crate) error: TorchError,
}

impl State<'_> {
    /// Numbers trained.
    pub(crate) fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|tensor| tensor.numel() as u64).sum()
    }

    /// Makes one step on samples `first .. first + count`, or leaves everything as it was.
    pub(crate) fn step(
        &mut self,
        first: u64,
        count: u32,
        measures: &Measures,
        learning_rate: f64,
    ) -> Result<Made, Failed> {
        let before = attempt(|| Before::of(self.device, &self.buffers))
            .and_then(|before| before)
            .map_err(|error| Failed { phase: Phase::Forward, error })?;
        let mut phase = Phase::Forward;
        let result = self.try_step(first, count, measures, learning_rate, &mut phase);
        gradients::release(&self.parameters);
        result.map_err(|error| {
            let error = before.restore(self.device, &self.buffers).err().unwrap_or(error);
            Failed { phase, error }
        })
    }

    fn try_step(
        &mut self,
        first: u64,
        count: u32,
        measures: &Measures,
        learning_rate: f64,
        phase: &mut Phase,
    ) -> Result<Made, TorchError> {
        let loss = self.accumulate(first, count, measures, phase)?;
        *phase = Phase::Optimizer;
        let all = gradients::of(&self.parameters);
        let outcome = match &self.scaler {
            Some(scaler) => attempt(|| scaler.unscale(&all)).and_then(|outcome| outcome)?,
            None => Unscaled::Finite,
        };
        // Read before the update, so that nothing can fail after it.
        let loss = attempt(|| loss.double_value(&[]))?;
        if outcome == Unscaled::Finite {
            if let Some(limit) = self.clip {
                let _norm = gradients::clip(&all, limit)?;
            }
            self.optimizer.step(learning_rate)?;
        }
        if let Some(scaler) = &mut self.scaler {
            scaler.update(outcome);
        }
        Ok(Made { loss, skipped: outcome == Unscaled::Overflow })
    }

    /// Forward and backward over all pieces of the batch; the mean loss, still on the device.
    fn accumulate(&self, first: u64, count: u32, measures: &Measures, phase: &mut Phase) -> Result<Tensor, TorchError> {
        let batch = attempt(|| self.workload.train_batch(first, count))?;
        let targets = batch.target_count() as f64;
        let scale = self.scaler.as_ref().map_or(1.0, GradScaler::scale);
        let mut total: Option<Tensor> = None;
        let mut start = 0;
        for size in pieces(count, measures.micro_batch) {
            *phase = Phase::Forward;
            let loss = attempt(|| self.loss(&batch.piece(start, size), measures.recompute) / targets)?;
            *phase = Phase::Backward;
            total = Some(attempt(|| {
                (&loss * scale).backward();
                let part = loss.detach().to_kind(Kind::Float);
                match &total {
                    Some(sum) => sum + part,
                    None => part,
                }
            })?);
            start += size;
        }
        Ok(total.expect("a batch has at least one piece"))
    }

    /// The summed loss of a piece.
    pub(crate) fn loss(&self, batch: &Batch, recompute_level: u32) -> Tensor {
        let _narrow = (self.kind != Kind::Float).then(|| Autocast::enter(self.device, self.kind));
        let segments = self.workload.segments();
        let mut values: Vec<Tensor> = batch.inputs.iter().map(Tensor::shallow_clone).collect();
        for (index, segment) in segments.iter().enumerate() {
            values = run(segment, &values, recomputes(recompute_level, index, segments.len()));
        }
        self.workload.loss_sum(&values, batch)
    }
}

fn run(segment: &Segment, values: &[Tensor], again: bool) -> Vec<Tensor> {
    if again { recompute(segment, values, Keep::OnDevice) } else { segment.run(values) }
}

/// Levels of recomputing: 1 is every second segment, 2 is all of them.
pub(crate) const RECOMPUTE_LEVELS: u32 = 2;

/// Whether a segment is recomputed. Never the last one: backward needs its activations at once, so nothing is saved.
fn recomputes(level: u32, index: usize, count: usize) -> bool {
    match level {
        _ if index + 1 == count => false,
        0 => false,
        1 => index % 2 == 1,
        _ => true,
    }
}

/// What a failed step must put back.
struct Before {
    rng: RngState,
    buffers: Vec<Tensor>,
}

impl Before {
    fn of(device: Device, buffers: &[Tensor]) -> Result<Before, TorchError> {
        Ok(Before { rng: rng::state(device)?, buffers: buffers.iter().map(Tensor::copy).collect() })
    }

    fn restore(&self, device: Device, buffers: &[Tensor]) -> Result<(), TorchError> {
        rng::set_state(device, &self.rng)?;
        for (buffer, copy) in buffers.iter().zip(&self.buffers) {
            gradients::copy_quietly(buffer, copy)?;
        }
        Ok(())
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
