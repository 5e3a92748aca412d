//! One step as a transaction: all of it happens, or none of it.
//!
//! A step changes parameters, moments, the loss scale, the random state, buffers and the data cursor. Forward and backward
//! change only gradients, random state and buffers, and those are put back when they fail. The optimizer's update comes
//! last, in place, without allocating; once it has begun, finishing it is all that is left.

use std::num::NonZeroU32;

use lowtide_core::{Bytes, Measures, Phase, Step, pieces};
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{AdamW, Autocast, GradScaler, Keep, TorchError, Unscaled, attempt, gradients, recompute};

use crate::inject::Injector;
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
    /// There where fp16 is used, or may be.
    pub(crate) scaler: Option<GradScaler>,
    pub(crate) kind: Kind,
    /// What `kind` becomes where the measures say so; `None` where they may not.
    pub(crate) narrow_kind: Option<Kind>,
    /// Levels of spilling: the last one is the moments, one before it the inputs of recomputed segments.
    pub(crate) spill_levels: u32,
    pub(crate) clip: Option<f64>,
    pub(crate) targets_per_sample: u64,
    /// Fails what it was told to fail.
    pub(crate) injector: Injector,
    /// The step whose update has begun and is not finished.
    pub(crate) begun: Option<Made>,
}

/// A step to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its number.
    pub(crate) step: Step,
    /// The first of its samples.
    pub(crate) first: u64,
    /// How many samples it has.
    pub(crate) count: u32,
}

/// A step that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Made {
    /// The mean loss over all targets.
    pub(crate) loss: f64,
    /// Samples computed, counted piece by piece.
    pub(crate) samples: u64,
    /// Whether the loss scale overflowed, so that the parameters were left alone.
    pub(crate) skipped: bool,
}

/// A step that failed and left nothing behind, or an update to finish.
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

    /// What the gradients take once they are complete.
    pub(crate) fn gradient_bytes(&self) -> Bytes {
        Bytes(bytes_of(&self.parameters))
    }

    /// Makes one step, or leaves everything as it was.
    ///
    /// Where the update has begun and failed, [`State::is_half_way`] says so, and the next call finishes the same update
    /// and computes nothing anew.
    pub(crate) fn step(&mut self, asked: Asked, measures: &Measures, learning_rate: f64) -> Result<Made, Failed> {
        if self.spills_moments(measures) {
            self.optimizer.spill().map_err(|error| Failed { phase: Phase::Optimizer, error })?;
        }
        let made = match self.begun.take() {
            Some(made) => made,
            None => self.compute(asked, measures)?,
        };
        self.update(made, measures, learning_rate)
    }

    /// Computes the gradients of some samples to see what that needs, and leaves everything as it was.
    pub(crate) fn probe(&mut self, first: u64, count: u32, measures: &Measures) -> Result<(), TorchError> {
        // No step has this number, so no error is injected.
        let asked = Asked { step: Step::ZERO, first, count };
        let before = self.note()?;
        let mut phase = Phase::Forward;
        let probed = self.gradients(asked, measures, &mut phase);
        gradients::release(&self.parameters);
        before.restore(self.device, &self.buffers)?;
        probed.map(drop)
    }

    /// The kind of numbers that these measures compute in.
    pub(crate) fn kind_in(&self, measures: &Measures) -> Kind {
        self.narrow_kind.filter(|_| measures.narrow).unwrap_or(self.kind)
    }

    /// Whether these measures keep the moments on the host.
    pub(crate) fn spills_moments(&self, measures: &Measures) -> bool {
        self.spill_levels > 0 && measures.spill >= self.spill_levels
    }

    /// How training computes a piece with these measures.
    fn training_way(&self, measures: &Measures) -> Way {
        let keep = if self.spill_levels > 0 && measures.spill > 0 { Keep::OnHost } else { Keep::OnDevice };
        let Measures { recompute, loss_chunks, .. } = *measures;
        Way { recompute, keep, loss_chunks, kind: self.kind_in(measures) }
    }

    /// How evaluation does. Without gradients nothing is kept, so there is nothing to recompute.
    pub(crate) fn evaluation_way(&self, measures: &Measures) -> Way {
        let (loss_chunks, kind) = (measures.eval_loss_chunks, self.kind_in(measures));
        Way { recompute: 0, keep: Keep::OnDevice, loss_chunks, kind }
    }

    /// The scaler, where these measures compute in fp16.
    fn scaler_in(&self, measures: &Measures) -> Option<&GradScaler> {
        self.scaler.as_ref().filter(|_| self.kind_in(measures) == Kind::Half)
    }

    /// Whether an update has begun and is not finished: the parameters are neither as before the step nor as after it.
    pub(crate) fn is_half_way(&self) -> bool {
        self.begun.is_some()
    }

    /// Everything before the update: afterwards the gradients are complete and clipped. A failure leaves nothing behind.
    fn compute(&mut self, asked: Asked, measures: &Measures) -> Result<Made, Failed> {
        let before = self.note().map_err(|error| Failed { phase: Phase::Forward, error })?;
        let mut phase = Phase::Forward;
        self.gradients(asked, measures, &mut phase).map_err(|error| {
            gradients::release(&self.parameters);
            let error = before.restore(self.device, &self.buffers).err().unwrap_or(error);
            Failed { phase, error }
        })
    }

    fn note(&self) -> Result<Before, TorchError> {
        attempt(|| Before::of(self.device, &self.buffers)).and_then(|before| before)
    }

    fn gradients(&self, asked: Asked, measures: &Measures, phase: &mut Phase) -> Result<Made, TorchError> {
        let (loss, samples) = self.accumulate(asked, measures, phase)?;
        *phase = Phase::Optimizer;
        self.injector.during(asked.step, *phase, || self.complete(&loss, samples, measures))
    }

    /// Unscales and clips the gradients.
    fn complete(&self, loss: &Tensor, samples: u64, measures: &Measures) -> Result<Made, TorchError> {
        let all = gradients::of(&self.parameters);
        let outcome = match self.scaler_in(measures) {
            Some(scaler) => attempt(|| scaler.unscale(&all)).and_then(|outcome| outcome)?,
            None => Unscaled::Finite,
        };
        // Read before the update, so that nothing can fail after it.
        let loss = attempt(|| loss.double_value(&[]))?;
        if let (Some(limit), Unscaled::Finite) = (self.clip, outcome) {
            let _norm = gradients::clip(&all, limit)?;
        }
        Ok(Made { loss, samples, skipped: outcome == Unscaled::Overflow })
    }

    /// The update, in place. It allocates nothing; should it fail all the same, the gradients stay for the next try.
    fn update(&mut self, made: Made, measures: &Measures, learning_rate: f64) -> Result<Made, Failed> {
        if !made.skipped
            && let Err(error) = self.optimizer.step(learning_rate)
        {
            self.begun = Some(made);
            return Err(Failed { phase: Phase::Optimizer, error });
        }
        let scales = self.scaler_in(measures).is_some();
        if let Some(scaler) = self.scaler.as_mut().filter(|_| scales) {
            scaler.update(if made.skipped { Unscaled::Overflow } else { Unscaled::Finite });
        }
        gradients::release(&self.parameters);
        Ok(made)
    }

    /// Forward and backward over all pieces of the batch; the mean loss, still on the device, and the samples computed.
    fn accumulate(&self, asked: Asked, measures: &Measures, phase: &mut Phase) -> Result<(Tensor, u64), TorchError> {
        let Asked { step, first, count } = asked;
        let batch = attempt(|| self.workload.train_batch(first, count))?;
        let targets = batch.target_count() as f64;
        let scale = self.scaler_in(measures).map(GradScaler::scale);
        let way = self.training_way(measures);
        let mut total: Option<Tensor> = None;
        let mut start = 0;
        for size in pieces(batch.samples(), measures.micro_batch) {
            *phase = Phase::Forward;
            let loss = self
                .injector
                .during(step, *phase, || attempt(|| self.loss(&batch.piece(start, size), way) / targets))?;
            *phase = Phase::Backward;
            let sum = self.injector.during(step, *phase, || {
                attempt(|| {
                    match scale {
                        Some(scale) => (&loss * scale).backward(),
                        None => loss.backward(),
                    }
                    let part = loss.detach().to_kind(Kind::Float);
                    match &total {
                        Some(sum) => sum + part,
                        None => part,
                    }
                })
            })?;
            total = Some(sum);
            start += size;
        }
        Ok((total.expect("a batch has at least one piece"), u64::from(start)))
    }

    /// The summed loss of a piece.
    fn loss(&self, batch: &Batch, way: Way) -> Tensor {
        self.with_outputs(batch, way, |outputs| self.workload.loss_sum(outputs, batch, way.loss_chunks))
    }

    /// What `compute` makes of a piece's outputs, in the run's precision. The outputs are gone afterwards.
    pub(crate) fn with_outputs<T>(&self, batch: &Batch, way: Way, compute: impl FnOnce(&[Tensor]) -> T) -> T {
        let _narrow = (way.kind != Kind::Float).then(|| Autocast::enter(self.device, way.kind));
        let segments = self.workload.segments();
        let mut values: Vec<Tensor> = batch.inputs.iter().map(Tensor::shallow_clone).collect();
        for (index, segment) in segments.iter().enumerate() {
            values = if recomputes(way.recompute, index, segments.len()) {
                recompute(segment, &values, way.keep)
            } else {
                segment.run(&values)
            };
        }
        compute(&values)
    }
}

/// What the tensors take.
pub(crate) fn bytes_of(tensors: &[Tensor]) -> u64 {
    tensors.iter().map(|tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64).sum()
}

/// How a piece is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    recompute: u32,
    /// Where the inputs of recomputed segments wait.
    keep: Keep,
    pub(crate) loss_chunks: NonZeroU32,
    kind: Kind,
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
#[path = "../examples/own_model/model.rs"]
mod own_model;

#[cfg(test)]
mod tests {
    use lowtide_core::MicroBatch;
    use lowtide_settings::RunSettings;
    use lowtide_torch::{DeviceAsked, start};

    use super::own_model::Curve;
    use super::*;
    use crate::prepare::new_state;

    const RATE: f64 = 0.01;
    const ASKED: Asked = Asked { step: Step(1), first: 0, count: 8 };

    fn measures() -> Measures {
        let all = MicroBatch::new(8).unwrap();
        Measures::new(all, all)
    }

    fn values(state: &State<'_>) -> Vec<Vec<f32>> {
        state.parameters.iter().map(|tensor| Vec::try_from(tensor.detach().flatten(0, -1)).unwrap()).collect()
    }

    #[test]
    fn an_update_that_failed_half_way_is_finished_and_not_begun_anew() {
        let facts = start(DeviceAsked::Cpu).unwrap();
        let settings = RunSettings::default();
        let fresh = || {
            rng::seed(facts.device, 1).unwrap();
            Curve::new(4)
        };
        let curve = fresh();
        let mut undisturbed = new_state(&settings, &facts, &curve, &[]);
        undisturbed.step(ASKED, &measures(), RATE).unwrap();

        let curve = fresh();
        let mut state = new_state(&settings, &facts, &curve, &[]);
        state.optimizer.allocate().unwrap();
        let before = values(&state);
        // The second group's first moment is of a kind that the kernel refuses.
        let mut moment = state.optimizer.moments().nth(2).unwrap().0.shallow_clone();
        moment.set_data(&moment.to_kind(Kind::Double));
        let failed = state.step(ASKED, &measures(), RATE).unwrap_err();
        assert_eq!(failed.phase, Phase::Optimizer);
        assert!(state.is_half_way());
        let half = values(&state);
        assert_ne!(half[0], before[0], "the first group is updated");
        assert_eq!(half[3], before[3], "the second is not");

        moment.set_data(&moment.to_kind(Kind::Float));
        state
            .step(Asked { first: u64::MAX, count: 0, ..ASKED }, &measures(), RATE)
            .expect("no batch is asked for again");
        assert!(!state.is_half_way());
        assert_eq!(values(&state), values(&undisturbed));
        assert_eq!(state.optimizer.steps(), 1);
    }

    #[test]
    fn an_update_that_failed_half_way_is_finished_after_spilling() {
        let facts = start(DeviceAsked::Cpu).unwrap();
        let settings = RunSettings::default();
        let run = |fails: bool| {
            rng::seed(facts.device, 1).unwrap();
            let curve = Curve::new(4);
            let mut state = new_state(&settings, &facts, &curve, &[]);
            state.spill_levels = 1;
            state.optimizer.allocate().unwrap();
            if fails {
                let mut moment = state.optimizer.moments().nth(2).unwrap().0.shallow_clone();
                moment.set_data(&moment.to_kind(Kind::Double));
                state.step(ASKED, &measures(), RATE).unwrap_err();
                assert!(state.is_half_way());
                moment.set_data(&moment.to_kind(Kind::Float));
                let spilled = Measures { spill: 1, ..measures() };
                state.step(ASKED, &spilled, RATE).unwrap();
                assert!(state.optimizer.is_spilled());
                state.step(Asked { step: Step(2), first: 8, ..ASKED }, &spilled, RATE).unwrap();
            } else {
                state.step(ASKED, &measures(), RATE).unwrap();
                state.step(Asked { step: Step(2), first: 8, ..ASKED }, &measures(), RATE).unwrap();
            }
            (values(&state), state.optimizer.steps())
        };
        assert_eq!(run(true), run(false));
    }

    #[test]
    fn levels_recompute_more_and_never_the_last() {
        let chosen = |level| (0..5).filter(|index| recomputes(level, *index, 5)).collect::<Vec<_>>();
        assert_eq!(chosen(0), [0usize; 0]);
        assert_eq!(chosen(1), [1, 3]);
        assert_eq!(chosen(RECOMPUTE_LEVELS), [0, 1, 2, 3]);
    }
}
