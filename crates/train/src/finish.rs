//! The end of a run: the last evaluation, the last checkpoint, the summary.

use lowtide_core::{Bytes, Ending, Event, Metrics, SCHEMA, Stop};
use lowtide_torch::{GradScaler, attempt, host};

use crate::checkpoint;
use crate::error::{Result, TrainError};
use crate::evaluate::Ended;
use crate::precision;
use crate::run::{Outcome, Run};
use crate::summary::{Stopped, Summary, device_name, weights_sha256};

impl Run<'_> {
    /// Saves the state and writes the summary. A last evaluation that fails costs neither.
    pub(crate) fn finish(&mut self, mut ending: Ending) -> Result<Outcome> {
        let step = self.progress.step;
        let is_open = ending == Ending::Finished && self.settings.eval.every.is_some() && !self.has_evaluated();
        let evaluated = if is_open { self.evaluate() } else { Ok(Ended::Done) };
        if let Some(ends) = evaluated.as_ref().ok().and_then(Ended::ending) {
            ending = ends;
        }
        let (stopped, stop) = match &ending {
            Ending::Finished => (Stopped::Finished, None),
            Ending::Line { stop } => (Stopped::Line, Some(stop.clone())),
            Ending::Interrupted => (Stopped::Interrupted, None),
            Ending::Error { .. } => unreachable!("a run that ends by an error has no summary"),
        };
        let checkpoint = self.save()?;
        self.tell(Event::Stopped { step, ending })?;
        let summary = self.summary(stopped)?;
        self.folder.summary(&summary)?;
        let _ = evaluated?;
        let least_line = stop.as_ref().and_then(|_| self.least_line());
        Ok(Outcome { summary, folder: self.folder.path().to_owned(), checkpoint, stop, least_line })
    }

    /// Does what can still be done after an error, and says where the last good checkpoint is.
    pub(crate) fn ended_by(&mut self, error: TrainError) -> TrainError {
        // Best effort, here and below: the error itself is what the caller hears.
        if matches!(error, TrainError::Engine(_)) && !self.state.is_half_way() {
            let _ = self.save();
        }
        let ending = match &error {
            TrainError::Line { stop, .. } => Ending::Line { stop: Stop::clone(stop) },
            other => Ending::Error { message: other.to_string() },
        };
        let _ = self.tell(Event::Stopped { step: self.progress.step, ending });
        match error {
            TrainError::File { path, source } => TrainError::Unwritten {
                path,
                source,
                folder: self.folder.path().to_owned(),
                checkpoint: checkpoint::newest(&self.folder.checkpoints()),
            },
            other => other,
        }
    }

    /// The run ends inside an update: the parameters are not to be saved, and the checkpoint before them counts.
    pub(crate) fn stopped_half_way(&self, stop: Stop) -> TrainError {
        let checkpoint = checkpoint::newest(&self.folder.checkpoints()).unwrap_or_default();
        TrainError::Line { stop: Box::new(stop), checkpoint }
    }

    fn summary(&self, stopped: Stopped) -> Result<Summary> {
        let (progress, figures) = (&self.progress, &self.progress.figures);
        let evaluated = self.progress.evaluated.as_ref();
        let is_early = stopped == Stopped::Finished && progress.step.get() < self.settings.train.steps;
        let seconds = self.now.training_seconds.max(f64::MIN_POSITIVE);
        let per_second = if self.now.samples == 0 { 0.0 } else { self.now.samples as f64 / seconds };
        let targets_per_second = per_second * self.state.targets_per_sample as f64;
        Ok(Summary {
            schema: SCHEMA,
            workload: self.state.workload.name().to_owned(),
            device: device_name(self.facts.device),
            precision: precision::name(self.state.kind_in(&self.measures())).to_owned(),
            parameters: self.state.parameter_count(),
            steps: progress.step.get(),
            stopped_early_at: is_early.then_some(progress.step.get()),
            effective_batch: self.settings.train.batch,
            micro_batch_final: self.measures().micro_batch.get(),
            line_bytes: self.memory.line.limit().map(Bytes::get),
            host_line_bytes: self.memory.host_line.limit().map(Bytes::get),
            peak_rss_bytes: host::resident().peak.get(),
            peak_reserved_bytes: figures.reserved_peak.get(),
            peak_allocated_bytes: figures.allocated_peak.get(),
            idle_after_eval_bytes: self.now.idle_after_eval.map(Bytes::get),
            oom_errors: figures.oom_errors,
            oom_recovered: figures.oom_recovered,
            skipped_steps: self.state.scaler.as_ref().map_or(0, GradScaler::skipped),
            samples_seen: figures.samples_seen,
            samples_lost: progress.next_sample.saturating_sub(figures.samples_seen),
            final_loss: figures.final_loss(),
            eval_loss: evaluated.map(|evaluated| evaluated.loss),
            metrics: evaluated.map_or_else(Metrics::default, |evaluated| evaluated.metrics.clone()),
            metrics_missing: self.progress.missing.clone(),
            eval: evaluated.and_then(|evaluated| self.eval_summary(evaluated)),
            loss_floor: self.state.workload.loss_floor(),
            samples_per_second: per_second,
            targets_per_second,
            tokens_per_second: self.state.workload.has_tokens().then_some(targets_per_second),
            weights_sha256: attempt(|| weights_sha256(&self.state.workload.state()))?,
            cache: self.state.workload.feeding(),
            wall_seconds: self.now.wall_seconds(),
            stopped,
        })
    }
}
