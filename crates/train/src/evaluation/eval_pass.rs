//! One try of an evaluation: every batch through the model, piece by piece, added up in plain numbers.
//!
//! Evaluation holds one piece at a time. Loss and metrics of a piece come from one forward and become plain numbers
//! before the next piece; only those are carried on, each metric by its own `Tally`. What it leaves cached is given
//! back where it is much, since its blocks have other sizes than those of training.
//!
//! Several ranks take a part of the samples each, one behind the other, and add up in that order what they found.

use lowtide_core::{Bytes, Event, Measures, Phase, Step, pieces};
use lowtide_settings::RunSettings;
use lowtide_torch::tch::{Tensor, no_grad_guard};
use lowtide_torch::{TorchError, attempt, rng};
use serde::{Deserialize, Serialize};

use super::figures::{EvalFigures, MissingFigures, selected_metrics};
use super::tiles::tiled_outputs;
use crate::error;
use crate::memory::{DeviceMemory, Injector, Moment, release_is_due};
use crate::ranks::{Agreed, OwnFailure, RankFailure, Team};
use crate::requests::Requests;
use crate::step::{Model, Pass};
use crate::workload::{Batch, Metric, PartOf, Workload};

/// What is evaluated, and how.
pub(super) struct EvalPass<'e> {
    pub(super) settings: &'e RunSettings,
    pub(super) requests: &'e Requests,
    pub(super) team: &'e Team,
    pub(super) model: &'e Model<'e>,
    pub(super) memory: &'e DeviceMemory,
    pub(super) measures: Measures,
    /// Pixels along each side of the tiles that frames are evaluated in.
    pub(super) tile: Option<u32>,
    /// Figures that are not asked for any more.
    pub(super) left_out: &'e MissingFigures,
}

/// What came of a try.
pub(super) enum EvalTry {
    /// Its figures.
    Done(EvalFigures),
    /// The run was asked to end meanwhile.
    Stopped,
    /// Memory ran out on some ranks.
    Failed(Vec<RankFailure>),
}

/// A try of this rank that failed, in a figure beyond the loss or elsewhere.
struct EvalError {
    metric: Option<&'static str>,
    error: TorchError,
}

impl From<TorchError> for EvalError {
    fn from(error: TorchError) -> EvalError {
        EvalError { metric: None, error }
    }
}

/// Batches in an evaluation; the last one is smaller where the samples come to an end in it.
pub(super) fn batches(settings: &RunSettings, samples: Option<u64>) -> u64 {
    let asked = settings.eval.batches;
    samples.map_or(asked, |samples| asked.min(samples.div_ceil(settings.train.batch.into())))
}

/// Samples in an evaluation.
fn samples(settings: &RunSettings, workload: &dyn Workload) -> u64 {
    let there = workload.eval_samples();
    let asked = batches(settings, there).saturating_mul(settings.train.batch.into());
    there.map_or(asked, |there| asked.min(there))
}

/// What this rank will ask of the samples to evaluate on; nothing to rely on where it asks for others each time.
pub(super) fn expected_part(settings: &RunSettings, workload: &dyn Workload, team: &Team) -> PartOf {
    let all = samples(settings, workload);
    let metrics = selected_metrics(&settings.eval, workload, &MissingFigures::new());
    let is_whole = workload.eval_samples() == Some(all);
    let own = if is_whole && can_split(&metrics) { team.part(0, all).1 } else { 0 };
    PartOf { own, whole: all }
}

/// Whether all figures can be made of parts.
fn can_split(metrics: &[Metric<'_>]) -> bool {
    metrics.iter().all(|metric| metric.tally.export().is_some())
}

impl<'e> EvalPass<'e> {
    /// One try, together with all other ranks.
    pub(super) fn run(&self, step: Step, injector: &Injector, releases: &mut Vec<Event>) -> error::Result<EvalTry> {
        let own = injector.during(step, Phase::Eval, || self.sums(step, releases));
        let own = own.map_err(|EvalError { metric, error }| {
            let metric = metric.map(str::to_owned);
            OwnFailure { metric, ..OwnFailure::new(Phase::Eval, error, self.memory) }
        });
        let is_stopped = matches!(own, Ok(None));
        let (agreed, stopped) = self.team.agree("agreeing on an evaluation", own, &[is_stopped.into()])?;
        Ok(match agreed {
            Agreed::Failed(failures) => EvalTry::Failed(failures),
            Agreed::Done(Some(sums)) if stopped.iter().all(|row| row == &[0]) => {
                EvalTry::Done(self.figures(step, sums)?)
            }
            Agreed::Done(_) => EvalTry::Stopped,
        })
    }

    /// What this rank's part of the samples adds up to; `None` where the run was asked to end meanwhile. Random numbers stay as
    /// they are.
    fn sums(&self, step: Step, releases: &mut Vec<Event>) -> Result<Option<Sums<'e>>, EvalError> {
        let device = self.model.device;
        let before = attempt(|| rng::state(device)).and_then(|state| state)?;
        let sums = self.sums_of_part(step, releases);
        rng::set_state(device, &before)?;
        sums
    }

    /// The figures over all samples, from the sums of all ranks.
    fn figures(&self, step: Step, sums: Sums<'e>) -> error::Result<EvalFigures> {
        let sums = if self.is_split() { self.whole(sums)? } else { sums };
        let tiling = self.model.workload.tiling().ok();
        let approximate = tiling.zip(self.tile).is_some_and(|(tiling, tile)| tiling.is_approximate(tile));
        Ok(sums.finish(step, self.tile, approximate))
    }

    fn metrics(&self) -> Vec<Metric<'e>> {
        selected_metrics(&self.settings.eval, self.model.workload, self.left_out)
    }

    /// Whether each rank evaluates a part: where all figures can be made of parts.
    fn is_split(&self) -> bool {
        !self.team.is_alone() && can_split(&self.metrics())
    }

    /// The sums of all ranks together.
    fn whole(&self, own: Sums<'e>) -> error::Result<Sums<'e>> {
        let mut whole = Sums { loss: 0.0, targets: 0, metrics: self.metrics() };
        let all = self.team.gather("adding up an evaluation", Some(&own.export()))?;
        all.into_iter().flatten().for_each(|part| whole.merge(&part));
        Ok(whole)
    }

    fn sums_of_part(&self, step: Step, releases: &mut Vec<Event>) -> Result<Option<Sums<'e>>, EvalError> {
        let batch = u64::from(self.settings.train.batch);
        let all = samples(self.settings, self.model.workload);
        let (start, part) = if self.is_split() { self.team.part(0, all) } else { (0, all) };
        let mut sums = Sums { loss: 0.0, targets: 0, metrics: self.metrics() };
        for index in 0..part.div_ceil(batch) {
            if self.requests.stop_asked() {
                return Ok(None);
            }
            let first = index * batch;
            let count = u32::try_from((part - first).min(batch)).expect("a batch has fewer than 2^32 samples");
            attempt(|| self.add_batch(&mut sums, start + first, count))??;
            let moment = Moment::InEvaluation { batches: index + 1 };
            let is_asked = self.settings.eval.clean_every.is_some_and(|every| (index + 1).is_multiple_of(every));
            if is_asked || release_is_due(self.settings.memory.clean, moment, step, None) {
                releases.push(self.memory.release_cache(step)?);
            }
        }
        Ok(Some(sums))
    }

    fn add_batch(&self, sums: &mut Sums<'_>, first: u64, count: u32) -> Result<(), EvalError> {
        let workload = self.model.workload;
        let _no_grad = no_grad_guard();
        let _evaluation = workload.mode().evaluate();
        let pass = self.model.evaluation_pass(&self.measures);
        let tiling = workload.tiling().ok();
        if let (Some(tile), Some(tiling)) = (self.tile, tiling) {
            for number in first..first + u64::from(count) {
                let sample = workload.eval_batch(number, 1);
                let outputs = tiled_outputs(self.model, &sample, pass, &tiling, tile);
                self.add_piece(sums, &outputs, &sample, pass)?;
            }
            return Ok(());
        }
        // Frames are large, on the host too: no more of them are there than are computed at once.
        let at_once = self.measures.eval_micro_batch;
        let in_a_batch = if tiling.is_some() { at_once.get() } else { count };
        for start in (0..count).step_by(in_a_batch as usize) {
            let samples = workload.eval_batch(first + u64::from(start), in_a_batch.min(count - start));
            let mut start = 0;
            for size in pieces(samples.samples(), at_once) {
                let piece = samples.piece(start, size).to_device(self.model.device);
                self.model.with_outputs(&piece, pass, |outputs| self.add_piece(sums, outputs, &piece, pass))?;
                start += size;
            }
        }
        Ok(())
    }

    fn add_piece(&self, sums: &mut Sums<'_>, outputs: &[Tensor], piece: &Batch, pass: Pass) -> Result<(), EvalError> {
        sums.loss += self.model.workload.loss_sum(outputs, piece, pass.loss_chunks).double_value(&[]);
        sums.targets += piece.target_count();
        for Metric { name, tally } in &mut sums.metrics {
            attempt(|| tally.add(outputs, piece)).map_err(|error| EvalError { metric: Some(name), error })?;
        }
        Ok(())
    }
}

/// What an evaluation adds up. Plain numbers, so that no tensor of one piece is there when the next is computed.
struct Sums<'a> {
    loss: f64,
    targets: u64,
    metrics: Vec<Metric<'a>>,
}

/// The sums of a rank, as others hear of them: bits, because not all numbers are finite.
#[derive(Serialize, Deserialize)]
struct SumsOfRank {
    loss: u64,
    targets: u64,
    metrics: Vec<Vec<u64>>,
}

impl Sums<'_> {
    fn export(&self) -> SumsOfRank {
        let bits = |metric: &Metric<'_>| metric.tally.export().iter().flatten().map(|value| value.to_bits()).collect();
        let metrics = self.metrics.iter().map(bits).collect();
        SumsOfRank { loss: self.loss.to_bits(), targets: self.targets, metrics }
    }

    fn merge(&mut self, part: &SumsOfRank) {
        self.loss += f64::from_bits(part.loss);
        self.targets += part.targets;
        for (metric, bits) in self.metrics.iter_mut().zip(&part.metrics) {
            metric.tally.merge(&bits.iter().copied().map(f64::from_bits).collect::<Vec<_>>());
        }
    }

    /// The loss is a mean over targets.
    fn finish(self, step: Step, tile: Option<u32>, approximate: bool) -> EvalFigures {
        let loss = self.loss / self.targets as f64;
        let metrics = self.metrics.into_iter().map(|metric| (metric.name.to_owned(), metric.tally.finish())).collect();
        EvalFigures { step, loss, metrics, peak: Bytes::ZERO, tile, approximate }
    }
}
