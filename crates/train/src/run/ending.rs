//! How a run ends: what is saved of it, and what came of it.

use std::path::PathBuf;

use lowtide_core::{Bytes, Ending, Event, Metrics, SCHEMA, Stop};
use lowtide_torch::{GradScaler, TorchError, attempt, host};

use super::trainer::Trainer;
use crate::error::{Result, TrainError};
use crate::folder::{RunEnding, Summary, weights_sha256};
use crate::step::precision_name;

/// How a run came to its end.
#[derive(Debug)]
pub struct Outcome {
    /// The figures.
    pub summary: Summary,
    /// Where everything is written.
    pub folder: PathBuf,
    /// The newest checkpoint.
    pub checkpoint: PathBuf,
    /// Why it stopped early, where memory was the reason.
    pub stop: Option<Stop>,
    /// The line that the last try would have needed at the least, where it stopped early and that is known.
    pub least_line: Option<Bytes>,
}

impl Trainer<'_> {
    /// Saves the state and writes the summary. A last evaluation that fails costs neither.
    pub(super) fn finish(&mut self, mut ending: Ending) -> Result<Outcome> {
        let is_open = ending == Ending::Finished
            && self.settings.eval.every.is_some()
            && !self.evaluator.has_evaluated(self.step);
        let evaluated = if is_open { self.evaluate() } else { Ok(None) };
        if let Ok(Some(ends)) = &evaluated {
            ending = ends.clone();
        }
        let (stopped, stop) = match &ending {
            Ending::Finished => (RunEnding::Finished, None),
            Ending::Line { stop } => (RunEnding::Line, Some(stop.clone())),
            Ending::Interrupted => (RunEnding::Interrupted, None),
            Ending::Error { .. } => unreachable!("a run that ends by an error has no summary"),
        };
        self.end_profile()?;
        let checkpoint = self.save()?;
        let summary = self.summary(stopped)?;
        self.check_weights(&summary.weights_sha256)?;
        let written = self.recovery.tell(Event::Stopped { step: self.step, ending });
        let written = written.and_then(|()| self.folder.as_ref().map_or(Ok(()), |folder| folder.summary(&summary)));
        self.recovery.team.settle("ending the run", written)?;
        evaluated?;
        let least_line = stop.as_ref().and_then(|_| self.recovery.least_line());
        let folder = self.folder.as_ref().map(|folder| folder.path().to_owned()).unwrap_or_default();
        Ok(Outcome { summary, folder, checkpoint, stop, least_line })
    }

    /// All ranks have the same weights, or something is wrong that nobody would see.
    fn check_weights(&self, own: &str) -> Result<()> {
        let team = self.recovery.team;
        let first = team.of_first("comparing weights", Some(own.to_owned()))?;
        let compared = if first == own {
            Ok(())
        } else {
            let message = format!("rank {} has other weights than rank 0: this must not happen", team.rank());
            Err(TorchError::Engine(message).into())
        };
        team.settle("comparing weights", compared)
    }

    /// Does what can still be done after an error, and says where the last good checkpoint is.
    pub(super) fn ended_by(&mut self, error: TrainError) -> TrainError {
        // Best effort, here and below: the error itself is what the caller hears.
        self.recovery.team.leave();
        let may_save = match (&error, &self.folder) {
            (TrainError::Engine(_) | TrainError::Ranks(_) | TrainError::OtherRank { .. }, _) => true,
            // A checkpoint that could not be written would not be now.
            (TrainError::File { path, .. }, Some(folder)) => !path.starts_with(&folder.checkpoints().path),
            _ => false,
        };
        // The parts of the optimizer's state that others held cannot be had any more.
        if may_save && !self.state.is_half_way() && self.state.shards.is_none() {
            let _ = self.save();
        }
        let error = self.shown_error(error);
        let ending = match &error {
            TrainError::Line { stop, .. } => Ending::Line { stop: Stop::clone(stop) },
            other => Ending::Error { message: other.to_string() },
        };
        let _ = self.recovery.tell(Event::Stopped { step: self.step, ending });
        match error {
            TrainError::File { path, source } => TrainError::Unwritten {
                path,
                source,
                folder: self.folder.as_ref().map(|folder| folder.path().to_owned()).unwrap_or_default(),
                checkpoint: self.newest_checkpoint(),
            },
            other => other,
        }
    }

    /// The run ends inside an update or a save: its state is not to be saved, and the checkpoint before it counts.
    pub(super) fn line_error(&self, stop: Stop) -> TrainError {
        TrainError::Line { stop: Box::new(stop), checkpoint: self.newest_checkpoint().unwrap_or_default() }
    }

    fn newest_checkpoint(&self) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        folder.checkpoints().newest().map(|(_, path)| folder.shown(&path))
    }

    /// An error about a file of the folder, as people call it.
    pub(super) fn shown_error(&self, error: TrainError) -> TrainError {
        match &self.folder {
            Some(folder) => folder.shown_error(error),
            None => error,
        }
    }

    fn summary(&self, stopped: RunEnding) -> Result<Summary> {
        let (model, memory) = (&self.state.model, &self.recovery.memory);
        let (workload, measures) = (model.workload, self.recovery.guard.measures());
        let (figures, evaluation) = (&self.recovery.figures, &self.evaluator.last);
        let is_early = stopped == RunEnding::Finished && self.step.get() < self.settings.train.steps;
        let (seconds, samples) = self.speed;
        let per_second = if samples == 0 { 0.0 } else { samples as f64 / seconds.max(f64::MIN_POSITIVE) };
        let targets_per_second = per_second * workload.targets_per_sample() as f64;
        Ok(Summary {
            schema: SCHEMA,
            workload: workload.name().to_owned(),
            device: memory.device_name(),
            precision: precision_name(model.kind_in(&measures)).to_owned(),
            parameters: model.parameter_count(),
            steps: self.step.get(),
            stopped_early_at: is_early.then_some(self.step.get()),
            effective_batch: self.settings.train.batch,
            micro_batch_final: measures.micro_batch.get(),
            line_bytes: memory.line.limit().map(Bytes::get),
            host_line_bytes: memory.host_line.limit().map(Bytes::get),
            peak_rss_bytes: host::resident().peak.get(),
            peak_reserved_bytes: figures.reserved_peak.get(),
            peak_allocated_bytes: figures.allocated_peak.get(),
            idle_after_eval_bytes: self.evaluator.most_idle.map(Bytes::get),
            oom_errors: figures.oom_errors,
            oom_recovered: figures.oom_recovered,
            skipped_steps: self.state.scaler.as_ref().map_or(0, GradScaler::skipped),
            samples_seen: self.samples_seen,
            samples_lost: self.next_sample.saturating_sub(self.samples_seen),
            final_loss: self.losses.mean(),
            eval_loss: evaluation.figures.as_ref().map(|figures| figures.loss),
            metrics: evaluation.figures.as_ref().map_or_else(Metrics::default, |figures| figures.metrics.clone()),
            metrics_missing: evaluation.missing.clone(),
            eval: self.evaluator.summary(),
            loss_floor: workload.loss_floor(),
            samples_per_second: per_second,
            targets_per_second,
            tokens_per_second: workload.has_tokens().then_some(targets_per_second),
            profile: self.profiling.found.clone(),
            weights_sha256: attempt(|| weights_sha256(&workload.state()))?,
            cache: workload.cache(),
            wall_seconds: self.wall_seconds(),
            stopped,
        })
    }
}
