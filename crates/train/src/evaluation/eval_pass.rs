//! One try of an evaluation: every batch through the model, piece by piece, added up in plain numbers.
//!
//! Evaluation holds one piece at a time. Loss and metrics of a piece come from one forward and become plain numbers
//! before the next piece; only those are carried on, each metric by its own `Tally`. What it leaves cached is given
//! back where it is much, since its blocks have other sizes than those of training.

use lowtide_core::{Bytes, Event, Measures, Step, pieces};
use lowtide_settings::RunSettings;
use lowtide_torch::tch::{Tensor, no_grad_guard};
use lowtide_torch::{TorchError, attempt, rng};

use super::figures::{EvalFigures, MissingFigures, selected_metrics};
use super::tiles::tiled_outputs;
use crate::memory::{DeviceMemory, Moment, release_is_due};
use crate::requests::Requests;
use crate::step::{Model, Pass};
use crate::workload::{Batch, Metric};

/// What is evaluated, and how.
pub(super) struct EvalPass<'e> {
    pub(super) settings: &'e RunSettings,
    pub(super) requests: &'e Requests,
    pub(super) model: &'e Model<'e>,
    pub(super) memory: &'e DeviceMemory,
    pub(super) measures: Measures,
    /// Pixels along each side of the tiles that frames are evaluated in.
    pub(super) tile: Option<u32>,
    /// Figures that are not asked for any more.
    pub(super) left_out: &'e MissingFigures,
}

/// A try that failed, in a figure beyond the loss or elsewhere.
pub(super) struct EvalError {
    pub(super) metric: Option<&'static str>,
    pub(super) error: TorchError,
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

impl EvalPass<'_> {
    /// The figures over all batches; `None` where the run was asked to end meanwhile. Random numbers stay as they are.
    pub(super) fn figures(&self, step: Step, releases: &mut Vec<Event>) -> Result<Option<EvalFigures>, EvalError> {
        let device = self.model.device;
        let before = attempt(|| rng::state(device)).and_then(|state| state)?;
        let sums = self.sums(step, releases);
        rng::set_state(device, &before)?;
        let tiling = self.model.workload.tiling().ok();
        let approximate = tiling.zip(self.tile).is_some_and(|(tiling, tile)| tiling.is_approximate(tile));
        Ok(sums?.map(|sums| sums.finish(step, self.tile, approximate)))
    }

    fn sums(&self, step: Step, releases: &mut Vec<Event>) -> Result<Option<Sums<'_>>, EvalError> {
        let batch = u64::from(self.settings.train.batch);
        let samples = self.model.workload.eval_samples();
        let metrics = selected_metrics(&self.settings.eval, self.model.workload, self.left_out);
        let mut sums = Sums { loss: 0.0, targets: 0, metrics };
        for index in 0..batches(self.settings, samples) {
            if self.requests.stop_asked() {
                return Ok(None);
            }
            let first = index * batch;
            let left = samples.map_or(batch, |samples| samples - first);
            let count = u32::try_from(left.min(batch)).expect("a batch has fewer than 2^32 samples");
            attempt(|| self.add_batch(&mut sums, first, count))??;
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

impl Sums<'_> {
    /// The loss is a mean over targets.
    fn finish(self, step: Step, tile: Option<u32>, approximate: bool) -> EvalFigures {
        let loss = self.loss / self.targets as f64;
        let metrics = self.metrics.into_iter().map(|metric| (metric.name.to_owned(), metric.tally.finish())).collect();
        EvalFigures { step, loss, metrics, peak: Bytes::ZERO, tile, approximate }
    }
}
