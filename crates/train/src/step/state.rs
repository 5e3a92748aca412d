//! One step as a transaction: all of it happens, or none of it.
//!
//! A step changes parameters, moments, the loss scale, the random state, buffers and the data cursor. Forward and backward
//! change only gradients, random state and buffers, and those are put back when they fail. The optimizer's update comes
//! last, in place, without allocating; once it has begun, finishing it is all that is left.

use lowtide_core::{Measures, Phase, Step, pieces};
use lowtide_settings::RunSettings;
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{AdamW, AdamWRule, GradScaler, GradientRange, ScalerRule, TorchError, attempt, gradients};

use super::model::{Model, Pass};
use crate::memory::Injector;
use crate::workload::Batch;

/// What a step trains: everything it may change.
pub(crate) struct State<'a> {
    pub(crate) model: Model<'a>,
    /// The parameters' names, in the same order.
    parameter_names: Vec<String>,
    pub(crate) optimizer: AdamW,
    /// There where fp16 is used, or may be.
    pub(crate) scaler: Option<GradScaler>,
    clip: Option<f64>,
    /// The step whose update has begun and is not finished.
    begun: Option<StepFigures>,
}

/// A step to be made: its samples, and how they are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepSpec {
    /// Its number.
    pub(crate) step: Step,
    /// The first of its samples.
    pub(crate) first: u64,
    /// How many samples it has.
    pub(crate) count: u32,
    /// What is done to stay under the line.
    pub(crate) measures: Measures,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepFigures {
    /// The mean loss over all targets.
    pub(crate) loss: f64,
    /// Samples computed, counted piece by piece.
    pub(crate) samples: u64,
    /// Whether the loss scale overflowed, so that the parameters were left alone.
    pub(crate) skipped: bool,
}

/// A step that failed and left nothing behind, or an update to finish.
#[derive(Debug)]
pub(crate) struct PhaseError {
    pub(crate) phase: Phase,
    pub(crate) error: TorchError,
}

impl<'a> State<'a> {
    /// The state before the first step; its moments are not allocated yet.
    pub(crate) fn new(settings: &RunSettings, model: Model<'a>) -> State<'a> {
        let optimizer = &settings.optimizer;
        let rule = AdamWRule { beta1: optimizer.beta1, beta2: optimizer.beta2, ..AdamWRule::default() };
        let (mut parameter_names, mut groups) = (Vec::new(), Vec::new());
        for (decay, parameters) in model.workload.parameter_groups() {
            let (names, tensors): (Vec<_>, Vec<_>) = parameters.into_iter().unzip();
            parameter_names.extend(names);
            groups.push((decay * optimizer.weight_decay, tensors));
        }
        let scaler = model.may_be_half().then(|| GradScaler::new(ScalerRule::default()));
        let (optimizer, clip) = (AdamW::new(rule, groups), optimizer.clip);
        State { model, parameter_names, optimizer, scaler, clip, begun: None }
    }

    /// The name of each parameter with its two moments, where they are allocated.
    pub(crate) fn moments(&self) -> impl Iterator<Item = (&str, (&Tensor, &Tensor))> {
        self.parameter_names.iter().map(String::as_str).zip(self.optimizer.moments())
    }

    /// Makes one step, or leaves everything as it was.
    ///
    /// Where the update has begun and failed, [`State::is_half_way`] says so, and the next call finishes the same update
    /// and computes nothing anew.
    pub(crate) fn step(
        &mut self,
        spec: &StepSpec,
        learning_rate: f64,
        injector: &Injector,
    ) -> Result<StepFigures, PhaseError> {
        if self.spills_moments(&spec.measures) {
            self.optimizer.spill().map_err(|error| PhaseError { phase: Phase::Optimizer, error })?;
        }
        let figures = match self.begun.take() {
            Some(figures) => figures,
            None => self.compute(spec, injector)?,
        };
        self.update(figures, &spec.measures, learning_rate)
    }

    /// Computes the gradients of some samples to see what that needs, and leaves everything as it was.
    pub(crate) fn probe(&mut self, spec: &StepSpec, injector: &Injector) -> Result<(), TorchError> {
        let before = self.note()?;
        let mut phase = Phase::Forward;
        let probed = self.gradients(spec, injector, &mut phase);
        gradients::release(&self.model.parameters);
        before.restore(self.model.device, &self.model.buffers)?;
        probed.map(drop)
    }

    /// Whether these measures keep the moments on the host.
    pub(crate) fn spills_moments(&self, measures: &Measures) -> bool {
        self.model.spill_levels > 0 && measures.spill >= self.model.spill_levels
    }

    /// The scaler, where these measures compute in fp16.
    fn scaler_in(&self, measures: &Measures) -> Option<&GradScaler> {
        self.scaler.as_ref().filter(|_| self.model.kind_in(measures) == Kind::Half)
    }

    /// Whether an update has begun and is not finished: the parameters are neither as before the step nor as after it.
    pub(crate) fn is_half_way(&self) -> bool {
        self.begun.is_some()
    }

    /// Everything before the update: afterwards the gradients are complete and clipped. A failure leaves nothing behind.
    fn compute(&mut self, spec: &StepSpec, injector: &Injector) -> Result<StepFigures, PhaseError> {
        let before = self.note().map_err(|error| PhaseError { phase: Phase::Forward, error })?;
        let mut phase = Phase::Forward;
        self.gradients(spec, injector, &mut phase).map_err(|error| {
            gradients::release(&self.model.parameters);
            let error = before.restore(self.model.device, &self.model.buffers).err().unwrap_or(error);
            PhaseError { phase, error }
        })
    }

    fn note(&self) -> Result<Before, TorchError> {
        let rng = rng::state(self.model.device)?;
        let buffers = attempt(|| self.model.buffers.iter().map(Tensor::copy).collect())?;
        Ok(Before { rng, buffers })
    }

    fn gradients(&self, spec: &StepSpec, injector: &Injector, phase: &mut Phase) -> Result<StepFigures, TorchError> {
        let (loss, samples) = self.accumulate(spec, injector, phase)?;
        *phase = Phase::Optimizer;
        injector.during(spec.step, *phase, || self.complete(&loss, samples, &spec.measures))
    }

    /// Unscales and clips the gradients.
    fn complete(&self, loss: &Tensor, samples: u64, measures: &Measures) -> Result<StepFigures, TorchError> {
        let all = gradients::of(&self.model.parameters);
        let outcome = match self.scaler_in(measures) {
            Some(scaler) => attempt(|| scaler.unscale(&all)).and_then(|outcome| outcome)?,
            None => GradientRange::Finite,
        };
        // Read before the update, so that nothing can fail after it.
        let loss = attempt(|| loss.double_value(&[]))?;
        if let (Some(limit), GradientRange::Finite) = (self.clip, outcome) {
            let _norm = gradients::clip(&all, limit)?;
        }
        Ok(StepFigures { loss, samples, skipped: outcome == GradientRange::Overflow })
    }

    /// The update, in place. It allocates nothing; should it fail all the same, the gradients stay for the next try.
    fn update(
        &mut self,
        figures: StepFigures,
        measures: &Measures,
        learning_rate: f64,
    ) -> Result<StepFigures, PhaseError> {
        if !figures.skipped
            && let Err(error) = self.optimizer.step(learning_rate)
        {
            self.begun = Some(figures);
            return Err(PhaseError { phase: Phase::Optimizer, error });
        }
        let scales = self.scaler_in(measures).is_some();
        if let Some(scaler) = self.scaler.as_mut().filter(|_| scales) {
            scaler.update(if figures.skipped { GradientRange::Overflow } else { GradientRange::Finite });
        }
        gradients::release(&self.model.parameters);
        Ok(figures)
    }

    /// Forward and backward over all pieces of the batch; the mean loss, still on the device, and the samples computed.
    fn accumulate(&self, spec: &StepSpec, injector: &Injector, phase: &mut Phase) -> Result<(Tensor, u64), TorchError> {
        let StepSpec { step, first, count, ref measures } = *spec;
        let batch = attempt(|| self.model.workload.train_batch(first, count))?;
        let targets = batch.target_count() as f64;
        let scale = self.scaler_in(measures).map(GradScaler::scale);
        let pass = self.model.training_pass(measures);
        let mut total: Option<Tensor> = None;
        let mut start = 0;
        for size in pieces(batch.samples(), measures.micro_batch) {
            *phase = Phase::Forward;
            let forward = || attempt(|| self.loss(&batch.piece(start, size), pass) / targets);
            let loss = injector.during(step, *phase, forward)?;
            *phase = Phase::Backward;
            let sum = injector.during(step, *phase, || {
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
    fn loss(&self, batch: &Batch, pass: Pass) -> Tensor {
        self.model.with_outputs(batch, pass, |outputs| self.model.workload.loss_sum(outputs, batch, pass.loss_chunks))
    }
}

/// What a failed step must put back.
struct Before {
    rng: RngState,
    buffers: Vec<Tensor>,
}

impl Before {
    fn restore(&self, device: Device, buffers: &[Tensor]) -> Result<(), TorchError> {
        rng::set_state(device, &self.rng)?;
        for (buffer, copy) in buffers.iter().zip(&self.buffers) {
            gradients::copy_quietly(buffer, copy)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../examples/own_model/model.rs"]
mod own_model;

#[cfg(test)]
mod tests {
    use lowtide_core::MicroBatch;
    use lowtide_torch::{DeviceChoice, DeviceFacts, start};

    use super::own_model::Curve;
    use super::*;

    const RATE: f64 = 0.01;

    /// Step `number`, of 8 samples.
    fn spec(number: u64) -> StepSpec {
        let all = MicroBatch::new(8).unwrap();
        StepSpec { step: Step(number), first: 8 * (number - 1), count: 8, measures: Measures::new(all, all) }
    }

    fn new_state<'a>(facts: &DeviceFacts, curve: &'a Curve) -> State<'a> {
        let settings = RunSettings::default();
        State::new(&settings, Model::new(&settings, facts, curve))
    }

    fn values(state: &State<'_>) -> Vec<Vec<f32>> {
        state.model.parameters.iter().map(|tensor| Vec::try_from(tensor.detach().flatten(0, -1)).unwrap()).collect()
    }

    #[test]
    fn an_update_that_failed_half_way_is_finished_and_not_begun_anew() {
        let facts = start(DeviceChoice::Cpu).unwrap();
        let nothing = Injector::new(facts.device, &[]);
        let fresh = || {
            rng::seed(facts.device, 1).unwrap();
            Curve::new(4)
        };
        let curve = fresh();
        let mut undisturbed = new_state(&facts, &curve);
        undisturbed.step(&spec(1), RATE, &nothing).unwrap();

        let curve = fresh();
        let mut state = new_state(&facts, &curve);
        state.optimizer.allocate().unwrap();
        let before = values(&state);
        // The second group's first moment is of a kind that the kernel refuses.
        let mut moment = state.optimizer.moments().nth(2).unwrap().0.shallow_clone();
        moment.set_data(&moment.to_kind(Kind::Double));
        let failed = state.step(&spec(1), RATE, &nothing).unwrap_err();
        assert_eq!(failed.phase, Phase::Optimizer);
        assert!(state.is_half_way());
        let half = values(&state);
        assert_ne!(half[0], before[0], "the first group is updated");
        assert_eq!(half[3], before[3], "the second is not");

        moment.set_data(&moment.to_kind(Kind::Float));
        state
            .step(&StepSpec { first: u64::MAX, count: 0, ..spec(1) }, RATE, &nothing)
            .expect("no batch is asked for again");
        assert!(!state.is_half_way());
        assert_eq!(values(&state), values(&undisturbed));
        assert_eq!(state.optimizer.steps, 1);
    }

    #[test]
    fn an_update_that_failed_half_way_is_finished_after_spilling() {
        let facts = start(DeviceChoice::Cpu).unwrap();
        let nothing = Injector::new(facts.device, &[]);
        let run = |fails: bool| {
            rng::seed(facts.device, 1).unwrap();
            let curve = Curve::new(4);
            let mut state = new_state(&facts, &curve);
            state.model.spill_levels = 1;
            state.optimizer.allocate().unwrap();
            if fails {
                let mut moment = state.optimizer.moments().nth(2).unwrap().0.shallow_clone();
                moment.set_data(&moment.to_kind(Kind::Double));
                state.step(&spec(1), RATE, &nothing).unwrap_err();
                assert!(state.is_half_way());
                moment.set_data(&moment.to_kind(Kind::Float));
                let spilled = |number| {
                    let spec = spec(number);
                    StepSpec { measures: Measures { spill: 1, ..spec.measures }, ..spec }
                };
                state.step(&spilled(1), RATE, &nothing).unwrap();
                assert!(state.optimizer.is_spilled());
                state.step(&spilled(2), RATE, &nothing).unwrap();
            } else {
                state.step(&spec(1), RATE, &nothing).unwrap();
                state.step(&spec(2), RATE, &nothing).unwrap();
            }
            (values(&state), state.optimizer.steps)
        };
        assert_eq!(run(true), run(false));
    }
}
