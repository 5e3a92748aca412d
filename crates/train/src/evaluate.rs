//! Evaluation: the loss and the workload's own figures on other samples, without touching what training holds.

use std::time::Instant;

use lowtide_core::{Bytes, Ending, Event, Metrics, Phase, Rung, Signal, Step, Stop, StopCause, Tried, pieces};
use lowtide_settings::{CropChoice, TileChoice};
use lowtide_torch::tch::{Tensor, no_grad_guard};
use lowtide_torch::{TorchError, attempt, rng};
use serde::{Deserialize, Serialize};

use crate::cleaning::{Cleaned, Moment, is_due};
use crate::error::Result;
use crate::memory::Reading;
use crate::metrics::{self, LOSS, Missing, reason};
use crate::progress::null_as_nan;
use crate::run::{Run, due};
use crate::step::Way;
use crate::summary::{EvalMode, EvalSummary};
use crate::tally::Metric;
use crate::workload::Batch;

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evaluated {
    /// The last committed step.
    pub(crate) step: Step,
    /// The mean loss; one that is no finite number is `null` in a file.
    #[serde(deserialize_with = "null_as_nan")]
    pub(crate) loss: f64,
    /// The workload's own figures.
    pub(crate) metrics: Metrics,
    /// The most memory held by tensors on the device meanwhile. Checkpoints of older runs do not tell.
    #[serde(default)]
    pub(crate) peak: Bytes,
    /// Pixels along each side of a tile, where frames were evaluated in tiles.
    #[serde(default)]
    pub(crate) tile: Option<u32>,
    /// Whether the tiles change what the model sees.
    #[serde(default)]
    pub(crate) approximate: bool,
}

/// A try that failed, in a figure beyond the loss or elsewhere.
struct Failure {
    metric: Option<&'static str>,
    error: TorchError,
}

impl From<TorchError> for Failure {
    fn from(error: TorchError) -> Failure {
        Failure { metric: None, error }
    }
}

/// How an evaluation ended.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an evaluation may end the run"]
pub(crate) enum Ended {
    /// With its figures, or given up.
    Done,
    /// The run was asked to end meanwhile; the evaluation is made again when the run goes on.
    Cut,
    /// By memory that ran out, with nobody to answer: the run ends.
    Stopped(Stop),
}

impl Ended {
    /// How it ends the run, where it does.
    pub(crate) fn ending(&self) -> Option<Ending> {
        match self {
            Ended::Done => None,
            Ended::Cut => Some(Ending::Interrupted),
            Ended::Stopped(stop) => Some(Ending::Line { stop: stop.clone() }),
        }
    }
}

impl Run<'_> {
    /// Evaluates where the settings ask for it after the last committed step and that was not done yet.
    pub(crate) fn evaluate_if_due(&mut self) -> Result<Ended> {
        let step = self.progress.step;
        let is_due =
            if step == Step::ZERO { self.settings.eval.at_start } else { due(self.settings.eval.every, step.get()) };
        if !is_due || self.has_evaluated() {
            return Ok(Ended::Done);
        }
        let ended = self.evaluate()?;
        if let Some(evaluated) = self.progress.evaluated.as_ref().filter(|evaluated| evaluated.step == step) {
            self.progress.trend.note(evaluated.loss);
        }
        Ok(ended)
    }

    /// Whether there was an evaluation after the last committed step: by any start, or one that this start gave up.
    pub(crate) fn has_evaluated(&self) -> bool {
        let step = Some(self.progress.step);
        self.progress.evaluated.as_ref().map(|evaluated| evaluated.step) == step
            || self.now.given_up.as_ref().map(|stop| stop.step) == step
    }

    /// Evaluates, trying again as the guard says. Training's state and random numbers stay as they are.
    ///
    /// A figure that cannot be computed under the line is left out, and so is an evaluation whose loss cannot be:
    /// training goes on.
    pub(crate) fn evaluate(&mut self) -> Result<Ended> {
        let step = self.progress.step;
        let begun = Instant::now();
        let before = self.memory.reading()?;
        self.progress.figures.memory(&before);
        let Reading { allocated, reserved, .. } = before;
        self.clean_if_due(step, Moment::BeforeEvaluation { allocated, reserved })?;
        self.memory.reset_peaks()?;
        let mut left_out = Missing::new();
        let mut tries = Tries::default();
        loop {
            let mut cleanings = Vec::new();
            let figures = self.state.injector.during(step, Phase::Eval, || self.figures(&left_out, &mut cleanings));
            for cleaned in cleanings {
                self.tell(cleaned.event(step))?;
            }
            match figures {
                Ok(None) => return Ok(Ended::Cut),
                Ok(Some(evaluated)) => {
                    let reading = self.memory.reading()?;
                    let Evaluated { loss, metrics, approximate, .. } = evaluated.clone();
                    self.progress.missing = left_out;
                    self.progress.evaluated = Some(Evaluated { peak: reading.allocated_peak, ..evaluated });
                    self.recovered();
                    self.progress.figures.memory(&reading);
                    let answer = self.progress.guard.on(Signal::Evaluated);
                    self.carry_out(step, answer)?;
                    let left = self.after_evaluation(step)?;
                    self.tell(Event::Evaluated {
                        step,
                        loss,
                        metrics,
                        batches: self.eval_batches(),
                        seconds: begun.elapsed().as_secs_f64(),
                        allocated: Some(left.allocated),
                        reserved: Some(left.reserved),
                        approximate,
                    })?;
                    self.sample()?;
                    return Ok(Ended::Done);
                }
                Err(Failure { metric, error }) => {
                    let reason = reason(&error);
                    let answers = self.now.eval_tile.is_some() && self.settings.memory.recover && error.is_oom();
                    let stop = if answers {
                        self.failed_in_tiles(metric, &error, &mut tries)?
                    } else {
                        self.failed(step, Phase::Eval, error)?
                    };
                    match (stop, metric) {
                        (None, _) => {}
                        (Some(_), Some(metric)) if !self.progress.guard.has_stopped() => {
                            let metric = metric.to_owned();
                            left_out.insert(metric.clone(), reason.clone());
                            self.tell(Event::MetricMissing { step, metric, reason })?;
                        }
                        (Some(stop), _) => return self.give_up_evaluation(stop),
                    }
                }
            }
        }
    }

    /// Goes on without the figures of this evaluation; without recovery, the run ends.
    fn give_up_evaluation(&mut self, stop: Stop) -> Result<Ended> {
        let step = self.progress.step;
        self.after_evaluation(step)?;
        let metrics = metrics::asked(&self.settings.eval, self.state.workload, &Missing::new());
        let names = [LOSS].into_iter().chain(metrics.iter().map(|metric| metric.name));
        self.progress.missing = names.map(|name| (name.to_owned(), stop.to_string())).collect();
        self.progress.evaluated = None;
        self.now.given_up = Some(stop.clone());
        if self.progress.guard.has_stopped() {
            return Ok(Ended::Stopped(stop));
        }
        self.tell(Event::EvaluationFailed { step, stop })?;
        Ok(Ended::Done)
    }

    /// The next smaller tile, where the size is left to the run.
    fn smaller_tile(&self) -> Option<u32> {
        let may_choose = self.settings.eval.tile == TileChoice::Auto && self.settings.memory.recover;
        let tile = self.now.eval_tile.filter(|_| may_choose)?;
        self.state.workload.tiling().ok()?.smaller(tile)
    }

    /// Answers memory that ran out in tiles: by smaller ones where the size is left to the run, else by one more try.
    ///
    /// The guard has nothing to do with it: what it can do makes pieces of a batch smaller, and a tile is one piece.
    fn failed_in_tiles(
        &mut self,
        metric: Option<&'static str>,
        error: &TorchError,
        tries: &mut Tries,
    ) -> Result<Option<Stop>> {
        let step = self.progress.step;
        self.note_failure(step, Phase::Eval, error)?;
        self.clean(step)?;
        // A figure is computed of the whole frame, whatever the tile.
        if let Some(tile) = self.smaller_tile().filter(|_| metric.is_none()) {
            (self.now.eval_tile, self.progress.found_tile) = (Some(tile), Some(tile));
            self.tell(Event::TileHalved { step, tile })?;
            return Ok(None);
        }
        if !std::mem::replace(&mut tries.cleaned, true) {
            return Ok(None);
        }
        self.forget_open_errors();
        let tile = self.now.eval_tile.unwrap_or_default();
        let smaller = self.state.workload.tiling().ok().and_then(|tiling| tiling.smaller(tile));
        let (phase, measures) = (Phase::Eval, self.measures());
        let cause = StopCause::TileTooLarge { tile, smaller };
        Ok(Some(Stop { step, phase, cause, measures, tried: vec![Tried { phase, rung: Rung::Clean, measures }] }))
    }

    /// What the summary tells of an evaluation of frames.
    pub(crate) fn eval_summary(&self, evaluated: &Evaluated) -> Option<EvalSummary> {
        let _tiling = self.state.workload.tiling().ok()?;
        let mode = match (evaluated.tile, self.settings.eval.crop) {
            (Some(_), _) => EvalMode::Tile,
            (None, CropChoice::Whole) => EvalMode::Whole,
            (None, CropChoice::Auto | CropChoice::Pixels(_)) => EvalMode::Crop,
        };
        Some(EvalSummary {
            mode,
            approximate: evaluated.approximate,
            tile: evaluated.tile,
            peak_bytes: evaluated.peak.get(),
            metrics: evaluated.metrics.clone(),
            missing: self.progress.missing.clone(),
        })
    }

    /// Cleans where that is due after an evaluation, and notes what is left then.
    fn after_evaluation(&mut self, step: Step) -> Result<Reading> {
        let Reading { allocated, reserved, .. } = self.memory.reading()?;
        self.clean_if_due(step, Moment::AfterEvaluation { allocated, reserved })?;
        let left = self.memory.reading()?;
        let idle = left.reserved.saturating_sub(left.allocated);
        self.now.idle_after_eval = self.now.idle_after_eval.max(Some(idle));
        Ok(left)
    }

    /// The figures over all batches; `None` where the run was asked to end meanwhile.
    fn figures(&self, left_out: &Missing, cleanings: &mut Vec<Cleaned>) -> Result<Option<Evaluated>, Failure> {
        let before = attempt(|| rng::state(self.state.device)).and_then(|state| state)?;
        let sums = self.sums(left_out, cleanings);
        rng::set_state(self.state.device, &before)?;
        let tile = self.now.eval_tile;
        let tiling = self.state.workload.tiling().ok();
        let approximate = tiling.zip(tile).is_some_and(|(tiling, tile)| tiling.is_approximate(tile));
        Ok(sums?.map(|sums| sums.finish(self.progress.step, tile, approximate)))
    }

    /// Batches in an evaluation; the last one is smaller where the samples come to an end in it.
    fn eval_batches(&self) -> u64 {
        let asked = self.settings.eval.batches;
        let samples = self.state.workload.eval_samples();
        samples.map_or(asked, |samples| asked.min(samples.div_ceil(self.settings.train.batch.into())))
    }

    fn sums(&self, left_out: &Missing, cleanings: &mut Vec<Cleaned>) -> Result<Option<Sums<'_>>, Failure> {
        let batch = u64::from(self.settings.train.batch);
        let metrics = metrics::asked(&self.settings.eval, self.state.workload, left_out);
        let mut sums = Sums { loss: 0.0, targets: 0, metrics };
        for index in 0..self.eval_batches() {
            if self.requests.stop_asked() {
                return Ok(None);
            }
            let first = index * batch;
            let left = self.state.workload.eval_samples().map_or(batch, |samples| samples - first);
            let count = u32::try_from(left.min(batch)).expect("a batch has fewer than 2^32 samples");
            attempt(|| self.add_batch(&mut sums, first, count))??;
            let moment = Moment::InEvaluation { batches: index + 1 };
            let asked = due(self.settings.eval.clean_every, index + 1);
            if asked || is_due(self.settings.memory.clean, moment, self.progress.step, None) {
                cleanings.push(self.memory.timed_clean()?);
            }
        }
        Ok(Some(sums))
    }

    fn add_batch(&self, sums: &mut Sums<'_>, first: u64, count: u32) -> Result<(), Failure> {
        let _no_grad = no_grad_guard();
        let _evaluating = self.state.workload.mode().evaluate();
        let workload = self.state.workload;
        let way = self.state.evaluation_way(&self.measures());
        let tiling = workload.tiling().ok();
        if let (Some(tile), Some(tiling)) = (self.now.eval_tile, tiling) {
            for number in first..first + u64::from(count) {
                let sample = workload.eval_batch(number, 1);
                let outputs = self.state.tiled_outputs(&sample, way, &tiling, tile);
                self.add_piece(sums, &outputs, &sample, way)?;
            }
            return Ok(());
        }
        // Frames are large, on the host too: no more of them are there than are computed at once.
        let at_once = self.measures().eval_micro_batch.get();
        let in_a_batch = if tiling.is_some() { at_once } else { count };
        for start in (0..count).step_by(in_a_batch as usize) {
            let samples = workload.eval_batch(first + u64::from(start), in_a_batch.min(count - start));
            let mut start = 0;
            for size in pieces(samples.samples(), self.measures().eval_micro_batch) {
                let piece = samples.piece(start, size).to_device(self.state.device);
                self.state.with_outputs(&piece, way, |outputs| self.add_piece(sums, outputs, &piece, way))?;
                start += size;
            }
        }
        Ok(())
    }

    fn add_piece(&self, sums: &mut Sums<'_>, outputs: &[Tensor], piece: &Batch, way: Way) -> Result<(), Failure> {
        sums.loss += self.state.workload.loss_sum(outputs, piece, way.loss_chunks).double_value(&[]);
        sums.targets += piece.target_count();
        for Metric { name, tally } in &mut sums.metrics {
            attempt(|| tally.add(outputs, piece)).map_err(|error| Failure { metric: Some(name), error })?;
        }
        Ok(())
    }
}

/// What was tried in one evaluation in tiles.
#[derive(Default)]
struct Tries {
    cleaned: bool,
}

/// What an evaluation adds up. Plain numbers, so that no tensor of one piece is there when the next is computed.
struct Sums<'a> {
    loss: f64,
    targets: u64,
    metrics: Vec<Metric<'a>>,
}

impl Sums<'_> {
    /// The loss is a mean over targets.
    fn finish(self, step: Step, tile: Option<u32>, approximate: bool) -> Evaluated {
        let loss = self.loss / self.targets as f64;
        let metrics = self.metrics.into_iter().map(|metric| (metric.name.to_owned(), metric.tally.finish())).collect();
        Evaluated { step, loss, metrics, peak: Bytes::ZERO, tile, approximate }
    }
}
