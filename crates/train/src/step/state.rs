//! One step as a transaction: all of it happens, or none of it.
//!
//! A step changes parameters, moments, the loss scale, the random state, buffers and the data cursor. Forward and backward
//! change only gradients, random state and buffers, and those are put back when they fail. The optimizer's update comes
//! last, in place, without allocating; once it has begun, finishing it is all that is left.
//!
//! With other ranks, each computes its own part of the batch. All agree that nobody failed before gradients are added up, and
//! once more before the update: until then a failure of one is undone on all. Their random numbers follow seed, step and rank, so
//! that a run that goes on needs no state of theirs. Where the moments are divided, each updates its part of the parameters, and
//! what they have updated is exchanged.

use std::ffi::CStr;

use lowtide_core::{Line, Measures, MicroBatch, Phase, Step, pieces};
use lowtide_settings::RunSettings;
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{
    AdamW, AdamWRule, GradScaler, GradientBuckets, GradientRange, Later, NarrowWeights, Ranks, ScalerRule, TorchError,
    attempt, gradients, span,
};

use super::companions::{Companions, Part, StepFailure};
use super::graphs::{Graphs, Shape};
use super::model::{Model, Pass};
use super::next_batch::NextBatch;
use crate::error::TrainError;
use crate::memory::Injector;
use crate::ranks::{OwnFailure, Shards, Team, Way};
use crate::workload::Batch;

/// What a step trains: everything it may change.
pub(crate) struct State<'a> {
    pub(crate) model: Model<'a>,
    /// The parameters' names, in the same order.
    pub(crate) parameter_names: Vec<String>,
    pub(crate) optimizer: AdamW,
    /// There where fp16 is used, or may be.
    pub(crate) scaler: Option<GradScaler>,
    clip: Option<f64>,
    seed: u64,
    /// Through which gradients are added up; none where there is one rank.
    buckets: Option<GradientBuckets>,
    /// Who holds which moments, where ranks have divided them.
    pub(crate) shards: Option<Shards>,
    next: NextBatch,
    /// Copies of the weights in the kind of products.
    narrow: NarrowWeights,
    /// Pieces that are replayed.
    pub(crate) graphs: Graphs,
    /// The step whose update has begun and is not finished.
    begun: Option<Complete>,
}

/// A step to be made: its samples, and how they are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepSpec {
    /// Its number.
    pub(crate) step: Step,
    /// The first of the samples that this rank computes.
    pub(crate) first: u64,
    /// How many those are.
    pub(crate) count: u32,
    /// How many of them it computes at once.
    pub(crate) micro_batch: MicroBatch,
    /// Samples that all ranks compute together.
    pub(crate) whole: u32,
    /// What is done to stay under the line.
    pub(crate) measures: Measures,
    /// The first sample of the step after it, where there is one that may be got ready meanwhile.
    pub(crate) next: Option<u64>,
}

/// What an update needs.
struct Complete {
    figures: StepFigures,
    /// What the gradients are multiplied by on the way, where that was not done before.
    factor: Option<Tensor>,
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
        let mut graphs = Graphs::new(settings.train.graphs, model.device);
        if let Some(reason) = model.workload.why_no_graphs() {
            graphs.refuse(reason);
        }
        let (seed, buckets, shards, begun) = (settings.seed, None, None, None);
        let (next, narrow) = (NextBatch::new(settings, model.device), NarrowWeights::default());
        State { model, parameter_names, optimizer, scaler, clip, seed, buckets, shards, next, narrow, graphs, begun }
    }

    /// What it holds for speed alone has to fit under this, beside all else.
    pub(crate) fn stay_under(&mut self, roof: Line) {
        self.graphs.stay_under(roof);
        self.next.stay_under(roof);
    }

    /// Allocates what it takes to add up gradients with other ranks.
    pub(crate) fn join(&mut self, team: &Team) -> Result<(), TorchError> {
        if !team.is_alone() && self.buckets.is_none() {
            self.buckets = Some(GradientBuckets::new(&self.model.parameters)?);
        }
        Ok(())
    }

    /// Divides the moments among ranks; from now on this one holds its part alone. Allocates nothing.
    pub(crate) fn shard(&mut self, ranks: &Ranks) {
        if self.shards.is_some() {
            return;
        }
        let shards = Shards::new(&self.model.parameters, ranks.world());
        self.optimizer.hold(|parameter| shards.elements(ranks.rank(), parameter));
        self.shards = Some(shards);
    }

    /// What a checkpoint came to on this rank, once all have given or taken their parts of it.
    pub(crate) fn attend<T>(&self, way: Way, team: &Team, own: Result<T, TrainError>) -> Result<T, TrainError> {
        match (&self.shards, team.ranks(), own) {
            (_, _, Err(error @ TrainError::Ranks(_))) => Err(error),
            (Some(shards), Some(ranks), own) => shards.attend(way, &self.optimizer, ranks).and(own),
            (_, _, own) => own,
        }
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
        companions: &mut Companions<'_>,
    ) -> Result<StepFigures, StepFailure> {
        let placed = self.place_moments(spec, injector, companions.ranks());
        let placed = placed.map_err(|error| companions.failure(Phase::Optimizer, error));
        let complete = match (self.begun.take(), companions.ranks()) {
            (Some(complete), _) => {
                placed.map_err(StepFailure::of)?;
                complete
            }
            (None, None) => {
                placed.map_err(StepFailure::of)?;
                self.compute(spec, injector, companions)?
            }
            (None, Some(ranks)) => self.compute_together(spec, injector, placed, companions, ranks)?,
        };
        self.update(complete, &spec.measures, learning_rate, companions)
    }

    /// Puts the moments where the measures say. What fails leaves their values as they are, and is tried again by the next call.
    fn place_moments(&mut self, spec: &StepSpec, injector: &Injector, ranks: Option<&Ranks>) -> Result<(), TorchError> {
        if let (true, Some(ranks)) = (spec.measures.shard, ranks) {
            self.shard(ranks);
        }
        if self.optimizer.is_uncut() {
            injector.during(spec.step, Phase::Optimizer, || self.optimizer.cut())?;
        }
        if self.spills_moments(&spec.measures) { self.optimizer.spill() } else { Ok(()) }
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
    fn compute(
        &mut self,
        spec: &StepSpec,
        injector: &Injector,
        companions: &Companions<'_>,
    ) -> Result<Complete, StepFailure> {
        let failure = |phase, error| StepFailure::of(companions.failure(phase, error));
        let before = self.note().map_err(|error| failure(Phase::Forward, error))?;
        let mut phase = Phase::Forward;
        self.gradients(spec, injector, &mut phase).map_err(|error| {
            gradients::release(&self.model.parameters);
            let error = before.restore(self.model.device, &self.model.buffers).err().unwrap_or(error);
            failure(phase, error)
        })
    }

    /// The same with other ranks: a failure of any leaves nothing behind on all.
    fn compute_together(
        &mut self,
        spec: &StepSpec,
        injector: &Injector,
        ready: Result<(), OwnFailure>,
        companions: &mut Companions<'_>,
        ranks: &Ranks,
    ) -> Result<Complete, StepFailure> {
        let mut phase = Phase::Forward;
        let seed = step_seed(self.seed, spec.step, ranks.rank());
        let noted = ready.and_then(|()| {
            let noted = rng::seed(self.model.device, seed).and_then(|()| self.note());
            noted.map_err(|error| companions.failure(Phase::Forward, error))
        });
        let (part, before) = match noted {
            Ok(before) => {
                let part = self.part(spec, injector, &mut phase);
                (part.map_err(|error| companions.failure(phase, error)), Some(before))
            }
            Err(failure) => (Err(failure), None),
        };
        let done = self.together(spec, injector, part, companions, ranks);
        done.map_err(|failure| {
            gradients::release(&self.model.parameters);
            let restored = before.map_or(Ok(()), |before| before.restore(self.model.device, &self.model.buffers));
            restored.err().map_or(failure, |error| StepFailure::Ended(error.into()))
        })
    }

    /// What this rank brings: the gradients of its samples, in a form that can be added up.
    fn part(&mut self, spec: &StepSpec, injector: &Injector, phase: &mut Phase) -> Result<Part, TorchError> {
        let Accumulated { loss, samples, targets } = self.accumulate(spec, injector, phase)?;
        let all = gradients::of(&self.model.parameters);
        gradients::make_contiguous(&all)?;
        let loss = attempt(|| loss.double_value(&[]))?;
        Ok(Part { loss, samples, targets, gradients: all.len() as u64 })
    }

    /// Adds up the gradients of all ranks once none has failed, then unscales and clips them.
    fn together(
        &self,
        spec: &StepSpec,
        injector: &Injector,
        part: Result<Part, OwnFailure>,
        companions: &mut Companions<'_>,
        ranks: &Ranks,
    ) -> Result<Complete, StepFailure> {
        let whole = companions.agree_on(part)?;
        let all = gradients::of(&self.model.parameters);
        let buckets = self.buckets.as_ref().expect("a state that has joined a team has buckets");
        buckets.sum(ranks, &all).map_err(StepFailure::ended)?;
        // Samples that cannot be read are left out: losses are divided by what was to be there, as long as nobody knows better.
        let expected = u64::from(spec.whole) * self.model.workload.targets_per_sample();
        let factor = (whole.targets != expected).then(|| expected as f64 / whole.targets as f64);
        let complete = || {
            factor.map_or(Ok(()), |factor| gradients::scale(&all, factor))?;
            let loss = whole.loss * factor.unwrap_or(1.0);
            self.complete(&all, || Ok(loss), whole.samples, &spec.measures)
        };
        let complete = injector.during(spec.step, Phase::Optimizer, complete);
        let complete = complete.map_err(|error| companions.failure(Phase::Optimizer, error));
        companions.agree("agreeing on an update", complete)
    }

    fn note(&self) -> Result<Before, TorchError> {
        let rng = rng::state(self.model.device)?;
        let buffers = attempt(|| self.model.buffers.iter().map(Tensor::copy).collect())?;
        Ok(Before { rng, buffers })
    }

    fn gradients(&mut self, spec: &StepSpec, injector: &Injector, phase: &mut Phase) -> Result<Complete, TorchError> {
        let Accumulated { loss, samples, .. } = self.accumulate(spec, injector, phase)?;
        *phase = Phase::Optimizer;
        injector.during(spec.step, *phase, || {
            let loss = Later::read(&loss)?;
            self.complete(&gradients::of(&self.model.parameters), || loss.get(), samples, &spec.measures)
        })
    }

    /// Unscales and clips the gradients, or leaves it to the update to clip them.
    fn complete(
        &self,
        all: &[Tensor],
        loss: impl FnOnce() -> Result<f64, TorchError>,
        samples: u64,
        measures: &Measures,
    ) -> Result<Complete, TorchError> {
        let outcome = match self.scaler_in(measures) {
            Some(scaler) => attempt(|| scaler.unscale(all)).and_then(|outcome| outcome)?,
            None => GradientRange::Finite,
        };
        let factor = match (self.clip, outcome) {
            (Some(limit), GradientRange::Finite) => span(UPDATE, || {
                if self.optimizer.takes_factor() {
                    gradients::clip_factor(all, limit).map(Some)
                } else {
                    gradients::clip(all, limit).map(|()| None)
                }
            })?,
            _ => None,
        };
        // Read before the update, so that nothing can fail after it; after the clipping, which the device does meanwhile.
        let loss = loss()?;
        let figures = StepFigures { loss, samples, skipped: outcome == GradientRange::Overflow };
        Ok(Complete { figures, factor })
    }

    /// The update, in place. It allocates nothing; should it fail all the same, the gradients stay for the next try.
    fn update(
        &mut self,
        complete: Complete,
        measures: &Measures,
        learning_rate: f64,
        companions: &Companions<'_>,
    ) -> Result<StepFigures, StepFailure> {
        let figures = complete.figures;
        if !figures.skipped
            && let Err(error) = span(UPDATE, || self.optimizer.step_by(learning_rate, complete.factor.as_ref()))
        {
            self.begun = Some(complete);
            let failure = companions.failure(Phase::Optimizer, error);
            // Others have made theirs already, so nothing can be agreed on any more.
            return Err(if companions.ranks().is_some() {
                StepFailure::Ended(*failure.error)
            } else {
                StepFailure::of(failure)
            });
        }
        if let (Some(shards), Some(ranks), false) = (&self.shards, companions.ranks(), figures.skipped) {
            let buckets = self.buckets.as_ref().expect("a state that has joined a team has buckets");
            shards.exchange(buckets, ranks).map_err(StepFailure::ended)?;
        }
        self.narrow.refresh(&self.model.parameters).map_err(StepFailure::ended)?;
        let scales = self.scaler_in(measures).is_some();
        if let Some(scaler) = self.scaler.as_mut().filter(|_| scales) {
            scaler.update(if figures.skipped { GradientRange::Overflow } else { GradientRange::Finite });
        }
        gradients::release(&self.model.parameters);
        Ok(figures)
    }

    /// Forward and backward over all pieces of the batch; the mean loss, still on the device, and the samples computed.
    fn accumulate(
        &mut self,
        spec: &StepSpec,
        injector: &Injector,
        phase: &mut Phase,
    ) -> Result<Accumulated, TorchError> {
        let StepSpec { step, first, count, micro_batch, whole, ref measures, next } = *spec;
        let batch = self.next.take(self.model.workload, first, count)?;
        if let Some(next) = next {
            self.next.prepare(self.model.workload, &batch, next, count);
        }
        let own_targets = batch.target_count();
        let targets = if whole == count { own_targets } else { u64::from(whole) * batch.targets_per_sample } as f64;
        let scale = self.scaler_in(measures).map(GradScaler::scale);
        let pass = self.model.training_pass(measures);
        let samples = batch.samples();
        // Where segments are recomputed their weights would be narrow one after the other, and kept they are all at once.
        self.narrow.keep(self.model.device.is_cuda() && !pass.recomputes());
        let mut start = 0;
        let cuts: Vec<Batch> = attempt(|| {
            let cut = |size| {
                start += size;
                batch.piece(start - size, size)
            };
            pieces(samples, micro_batch).map(cut).collect()
        })?;
        let shapes: Vec<Shape> = cuts.iter().map(|piece| Shape::of(piece, pass, targets, scale)).collect();
        let watch = self.graphs.begin(shapes.clone())?;
        let mut total = self.graphs.total();
        let State { model, graphs, .. } = self;
        for (piece, shape) in cuts.iter().zip(&shapes) {
            *phase = Phase::Forward;
            let replays = injector.during(step, *phase, || {
                graphs.ready(&watch, shape, piece, |piece, total| {
                    let loss = mean_loss(model, piece, pass, targets);
                    backward(&loss, scale);
                    let _ = total.shallow_clone().g_add_(&loss.detach().to_kind(Kind::Float));
                })
            });
            if replays? {
                *phase = Phase::Backward;
                injector.during(step, *phase, || graphs.replay(shape))?;
                continue;
            }
            let loss = injector.during(step, *phase, || attempt(|| mean_loss(model, piece, pass, targets)))?;
            *phase = Phase::Backward;
            let sum = injector.during(step, *phase, || {
                attempt(|| {
                    backward(&loss, scale);
                    let part = loss.detach().to_kind(Kind::Float);
                    match &total {
                        Some(sum) => sum + part,
                        None => part,
                    }
                })
            })?;
            total = Some(sum);
        }
        self.graphs.done(watch, &self.model.parameters)?;
        if let Some(next) = next {
            self.next.bring(self.model.workload, &batch, next, count);
        }
        let loss = total.expect("a batch has at least one piece");
        Ok(Accumulated { loss, samples: samples.into(), targets: own_targets })
    }
}

/// The loss of a piece, over the targets of all of them.
fn mean_loss(model: &Model<'_>, piece: &Batch, pass: Pass, targets: f64) -> Tensor {
    let sum = |outputs: &[Tensor]| model.workload.loss_sum(outputs, piece, pass.loss_chunks);
    model.with_outputs(piece, pass, sum) / targets
}

fn backward(loss: &Tensor, scale: Option<f64>) {
    match scale {
        Some(scale) => (loss * scale).backward(),
        None => loss.backward(),
    }
}

/// What a profiler calls clipping and update.
pub(crate) const UPDATE: &CStr = c"lowtide: update";

/// What came of forward and backward.
struct Accumulated {
    /// The loss of all pieces over the targets of the whole step, still on the device.
    loss: Tensor,
    samples: u64,
    targets: u64,
}

/// Where the random numbers of a rank start in a step; far from each other for all seeds, steps and ranks (SplitMix64).
fn step_seed(seed: u64, step: Step, rank: u32) -> u64 {
    [step.get(), rank.into()].into_iter().fold(seed, |mixed, next| {
        let mut bits = mixed.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_add(next.wrapping_mul(0xD1B5_4A32_D192_ED03));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    })
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
    use lowtide_core::Bytes;
    use lowtide_torch::cuda::{Deterministic, set_environment};
    use lowtide_torch::{DeviceChoice, DeviceFacts, start};

    use super::own_model::Curve;
    use super::*;
    use crate::memory::DeviceMemory;
    use crate::step::Asked;

    const RATE: f64 = 0.01;

    /// Step `number`, of 8 samples.
    fn spec(number: u64) -> StepSpec {
        let all = MicroBatch::new(8).unwrap();
        let measures = Measures::new(all, all);
        StepSpec {
            step: Step(number),
            first: 8 * (number - 1),
            count: 8,
            micro_batch: all,
            whole: 8,
            measures,
            next: None,
        }
    }

    fn new_state<'a>(facts: &DeviceFacts, curve: &'a Curve) -> State<'a> {
        let settings = RunSettings::default();
        State::new(&settings, Model::new(&settings, facts, curve))
    }

    /// A step of a rank that is alone, in which no error is injected.
    fn step(state: &mut State<'_>, facts: &DeviceFacts, spec: &StepSpec) -> Result<StepFigures, StepFailure> {
        let settings = RunSettings::default().memory;
        let allocator = set_environment(&settings.allocator, Deterministic::No);
        let memory = DeviceMemory::resolve(&settings, facts, &allocator, Bytes::ZERO).unwrap();
        let (team, memory) = (&Team::default(), &memory);
        let (resting, asked, tightest) = (Bytes::ZERO, Asked::default(), None);
        let mut companions = Companions { team, memory, resting, asked, tightest };
        state.step(spec, RATE, &Injector::new(facts.device, 0, &[]), &mut companions)
    }

    #[test]
    fn random_numbers_of_seeds_steps_and_ranks_are_apart() {
        let seeds = |seed| (1..20).flat_map(move |step| (0..8).map(move |rank| step_seed(seed, Step(step), rank)));
        let all: std::collections::BTreeSet<u64> = (0..20).flat_map(seeds).collect();
        assert_eq!(all.len(), 20 * 19 * 8);
    }

    fn values(state: &State<'_>) -> Vec<Vec<f32>> {
        state.model.parameters.iter().map(|tensor| Vec::try_from(tensor.detach().flatten(0, -1)).unwrap()).collect()
    }

    #[test]
    fn an_update_that_failed_half_way_is_finished_and_not_begun_anew() {
        let facts = start(DeviceChoice::Cpu).unwrap();
        let fresh = || {
            rng::seed(facts.device, 1).unwrap();
            Curve::new(4)
        };
        let curve = fresh();
        let mut undisturbed = new_state(&facts, &curve);
        step(&mut undisturbed, &facts, &spec(1)).unwrap();

        let curve = fresh();
        let mut state = new_state(&facts, &curve);
        state.optimizer.allocate().unwrap();
        let before = values(&state);
        // The second group's first moment is of a kind that the kernel refuses.
        let mut moment = state.optimizer.moments().nth(2).unwrap().0.shallow_clone();
        moment.set_data(&moment.to_kind(Kind::Double));
        let failed = step(&mut state, &facts, &spec(1)).unwrap_err();
        assert!(matches!(failed, StepFailure::Ended(_)), "this is no lack of memory: {failed:?}");
        assert!(state.is_half_way());
        let half = values(&state);
        assert_ne!(half[0], before[0], "the first group is updated");
        assert_eq!(half[3], before[3], "the second is not");

        moment.set_data(&moment.to_kind(Kind::Float));
        step(&mut state, &facts, &StepSpec { first: u64::MAX, count: 0, ..spec(1) })
            .expect("no batch is asked for again");
        assert!(!state.is_half_way());
        assert_eq!(values(&state), values(&undisturbed));
        assert_eq!(state.optimizer.steps, 1);
    }

    #[test]
    fn an_update_that_failed_half_way_is_finished_after_spilling() {
        let facts = start(DeviceChoice::Cpu).unwrap();
        let run = |fails: bool| {
            rng::seed(facts.device, 1).unwrap();
            let curve = Curve::new(4);
            let mut state = new_state(&facts, &curve);
            state.model.spill_levels = 1;
            state.optimizer.allocate().unwrap();
            if fails {
                let mut moment = state.optimizer.moments().nth(2).unwrap().0.shallow_clone();
                moment.set_data(&moment.to_kind(Kind::Double));
                step(&mut state, &facts, &spec(1)).unwrap_err();
                assert!(state.is_half_way());
                moment.set_data(&moment.to_kind(Kind::Float));
                let spilled = |number| {
                    let spec = spec(number);
                    StepSpec { measures: Measures { spill: 1, ..spec.measures }, ..spec }
                };
                step(&mut state, &facts, &spilled(1)).unwrap();
                assert!(state.optimizer.is_spilled());
                step(&mut state, &facts, &spilled(2)).unwrap();
            } else {
                step(&mut state, &facts, &spec(1)).unwrap();
                step(&mut state, &facts, &spec(2)).unwrap();
            }
            (values(&state), state.optimizer.steps)
        };
        assert_eq!(run(true), run(false));
    }
}
