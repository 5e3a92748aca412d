//! The trainer: steps, evaluations and checkpoints until the run ends.

use std::path::PathBuf;
use std::time::Instant;

use lowtide_core::{Bytes, Ending, Event, Metrics, Phase, Record, SCHEMA, Step, Stop};
use lowtide_settings::{MicroBatchChoice, RunSettings};
use lowtide_torch::cuda::AllocatorSettings;
use lowtide_torch::{DeviceFacts, GradScaler, attempt, host};

use super::choices::Choices;
use super::sizing::Trial;
use super::start::{make_room, standing};
use crate::error::{Result, TrainError};
use crate::evaluation::{EvalOutcome, Evaluator, Trend};
use crate::folder::{
    Checkpoints, Figures, FolderChoice, Progress, RecentLosses, RunEnding, RunFolder, Schedule, ScheduleLine, Start,
    Summary, checkpoint, weights_sha256,
};
use crate::journal::Journal;
use crate::memory::{DeviceMemory, Injection, Injector, Moment, Monitor, Profile, Recovery};
use crate::requests::Requests;
use crate::step::{Model, PhaseError, State, StepFigures, StepSpec, learning_rate, precision_name};
use crate::workload::Workload;

/// What a run is given.
pub struct TrainJob<'a> {
    /// The settings, checked.
    pub settings: &'a RunSettings,
    /// The device it runs on.
    pub facts: &'a DeviceFacts,
    /// Where the CUDA allocator's settings come from.
    pub allocator: &'a AllocatorSettings,
    /// Where it is written down, and whether it starts anew.
    pub folder: FolderChoice,
    /// What is asked of it while it trains.
    pub requests: &'a Requests,
    /// Errors that it is to meet, for tests. Usually empty.
    pub injections: &'a [Injection],
    /// The schedule of another run, to be followed until memory asks for something else.
    pub schedule: Option<Schedule>,
}

/// A run that is ready to train: the model fits, the folder is open, the first checkpoint is written.
pub struct Trainer<'a> {
    settings: &'a RunSettings,
    requests: &'a Requests,
    folder: RunFolder,
    state: State<'a>,
    recovery: Recovery<'a>,
    evaluator: Evaluator<'a>,
    monitor: Monitor,
    /// Followed until the guard goes down a rung: from then on it decides alone.
    schedule: Option<Schedule>,
    /// Steps committed.
    step: Step,
    /// The next sample to train on: the data cursor.
    next_sample: u64,
    /// Whether the guard has its first micro-batch.
    is_sized: bool,
    /// Samples computed in committed steps, counted piece by piece.
    samples_seen: u64,
    losses: RecentLosses,
    trend: Trend,
    /// Seconds of the starts before this one.
    earlier_seconds: f64,
    /// Seconds spent in the steps of this start, and their samples.
    speed: (f64, u64),
}

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

impl<'a> Trainer<'a> {
    /// Checks that the model can fit, then opens the folder. Nothing is written before all checks are passed.
    pub fn prepare(
        job: TrainJob<'a>,
        workload: &'a dyn Workload,
        listener: impl FnMut(&Record) + 'a,
    ) -> Result<Trainer<'a>> {
        let TrainJob { settings, facts, allocator, folder, requests, injections, schedule } = job;
        if let Some(schedule) = &schedule {
            schedule.fits(settings.train.steps, settings.train.batch)?;
        }
        Evaluator::check(settings, workload)?;
        let memory = DeviceMemory::resolve(&settings.memory, facts, allocator, workload.data_reserve())?;
        let model = Model::new(settings, facts, workload);
        if let Some(schedule) = &schedule {
            schedule.agrees(|measures| model.kind_in(measures))?;
        }
        let mut choices = Choices::of(settings, &model, schedule.as_ref(), Profile::of(facts, memory.line));
        let mut state = State::new(settings, model);
        make_room(&mut state, &memory, &mut choices)?;
        let (start, is_first) = (folder.start(), folder.is_fresh());
        let injector = Injector::new(facts.device, injections);
        let (progress, load_events) = standing(&folder, &choices, &memory, &mut state, &injector)?;
        let (folder, events) = folder.open(settings, progress.step)?;
        let journal = Journal::new(Some(events), listener);
        let figures = progress.figures;
        let clean = settings.memory.clean;
        let mut trainer = Trainer {
            settings,
            requests,
            folder,
            state,
            recovery: Recovery::new(memory, progress.guard, journal, injector, clean, figures.memory),
            evaluator: Evaluator::new(settings, requests, workload, progress.evaluation),
            monitor: Monitor::new(&settings.watch),
            schedule,
            step: progress.step,
            next_sample: progress.next_sample,
            is_sized: progress.is_sized,
            samples_seen: figures.samples_seen,
            losses: figures.recent_losses,
            trend: progress.trend,
            earlier_seconds: figures.wall_seconds,
            speed: (0.0, 0),
        };
        let begun = trainer.begin(start, load_events);
        let begun = begun.and_then(|()| if is_first { trainer.save().map(drop) } else { Ok(()) });
        if begun.is_err() && start == Start::New {
            trainer.folder.abandon();
        }
        begun.map(|()| trainer)
    }

    /// Trains to the end.
    pub fn train(mut self) -> Result<Outcome> {
        let ended = self.steps().and_then(|ending| self.finish(ending));
        ended.map_err(|error| self.ended_by(error))
    }

    /// Tells of the run, and chooses its first micro-batch where that is left to it.
    fn begin(&mut self, start: Start, load_events: Vec<Event>) -> Result<()> {
        let model = &self.state.model;
        let started = Event::RunStarted {
            workload: model.workload.name().to_owned(),
            device: self.recovery.memory.device_name(),
            seed: self.settings.seed,
            batch: self.settings.train.batch,
            micro_batch: self.recovery.guard.measures().micro_batch,
            line: self.recovery.memory.line,
            host_line: self.recovery.memory.host_line,
            parameters: model.parameter_count(),
            resumed_at: (start == Start::Resume).then_some(self.step),
        };
        let is_open = self.settings.train.micro_batch == MicroBatchChoice::Auto && model.workload.splits();
        [started].into_iter().chain(load_events).try_for_each(|event| self.recovery.tell(event))?;
        if self.is_sized || !is_open || self.schedule.is_some() {
            self.is_sized = true;
            return Ok(());
        }
        let mut trial = Trial {
            state: &mut self.state,
            recovery: &mut self.recovery,
            requests: self.requests,
            step: self.step,
            next_sample: self.next_sample,
            batch: self.settings.train.batch,
        };
        self.is_sized = trial.choose_micro_batch()?;
        Ok(())
    }

    /// Steps, evaluations and checkpoints, until something ends them.
    fn steps(&mut self) -> Result<Ending> {
        // Before the first step, or one that an earlier start was ended in.
        let was_open = !self.evaluator.has_evaluated(self.step);
        if let Some(ending) = self.evaluate_if_due()? {
            return Ok(ending);
        }
        if was_open && self.evaluator.has_evaluated(self.step) && self.step != Step::ZERO {
            // Its checkpoint is there; now it may be the best.
            self.save()?;
        }
        loop {
            if self.step.get() >= self.settings.train.steps {
                return Ok(Ending::Finished);
            }
            if self.trend.outlasts(self.settings.eval.patience) {
                let Trend { best, not_better, .. } = self.trend;
                self.recovery.tell(Event::StoppedEarly { step: self.step, evaluations: not_better, best })?;
                return Ok(Ending::Finished);
            }
            if self.requests.stop_asked() {
                return Ok(Ending::Interrupted);
            }
            if let Some(stop) = self.step()? {
                return Ok(Ending::Line { stop });
            }
            if let Some(ending) = self.evaluate_if_due()? {
                return Ok(ending);
            }
            if self.monitor.is_due(self.step) {
                self.sample()?;
            }
            if self.requests.take_save() || self.is_at(self.settings.save.every) {
                self.save()?;
            }
        }
    }

    /// Makes the next step, trying again as the guard says.
    fn step(&mut self) -> Result<Option<Stop>> {
        let step = self.step.next();
        let rate = learning_rate(&self.settings.optimizer, step.get(), self.settings.train.steps);
        if let Some(schedule) = &self.schedule {
            self.recovery.guard.follow(schedule.at(step, self.recovery.guard.measures()));
        }
        let begun = Instant::now();
        self.recovery.clean_if_due(step, Moment::InStep)?;
        self.recovery.memory.reset_peaks()?;
        let resting = self.recovery.memory.resting(self.state.model.parameter_bytes())?;
        loop {
            let measures = self.recovery.guard.measures();
            let spec = StepSpec { step, first: self.next_sample, count: self.settings.train.batch, measures };
            match self.state.step(&spec, rate, &self.recovery.injector) {
                Ok(figures) => {
                    self.commit(&spec, figures, rate, resting, begun.elapsed().as_secs_f64())?;
                    return Ok(None);
                }
                Err(PhaseError { phase, error }) => match self.recovery.failed(step, phase, error)? {
                    Some(stop) if self.state.is_half_way() => return Err(self.line_error(stop)),
                    Some(stop) => return Ok(Some(stop)),
                    None if self.recovery.guard.measures() != measures => self.schedule = None,
                    None => {}
                },
            }
        }
    }

    fn commit(&mut self, spec: &StepSpec, figures: StepFigures, rate: f64, resting: Bytes, seconds: f64) -> Result<()> {
        let StepSpec { step, count, measures, .. } = *spec;
        let StepFigures { loss, samples, skipped } = figures;
        let reading = self.recovery.memory.reading()?;
        self.step = step;
        self.next_sample += u64::from(count);
        self.speed = (self.speed.0 + seconds, self.speed.1 + samples);
        self.samples_seen += samples;
        self.losses.push(loss);
        self.recovery.figures.note(&reading);
        self.recovery.recovered();

        let model = &self.state.model;
        let tokens = model.workload.has_tokens().then_some(samples * model.workload.targets_per_sample());
        self.folder.schedule.write(&ScheduleLine::new(step, count, &measures, model.kind_in(&measures)))?;
        if skipped {
            let scale = self.state.scaler.as_ref().map_or(1.0, GradScaler::scale);
            self.recovery.tell(Event::Skipped { step, scale })?;
        }
        self.recovery.tell(Event::StepDone {
            step,
            loss,
            learning_rate: rate,
            samples,
            tokens,
            seconds,
            allocated: reading.allocated,
            peak: reading.allocated_peak,
            reserved: reading.reserved_peak,
            micro_batch: measures.micro_batch,
        })?;
        self.recovery.committed(step, resting, &reading)
    }

    /// Whether the last committed step is one after which something is done that is done `every` so many steps.
    fn is_at(&self, every: Option<u64>) -> bool {
        every.is_some_and(|every| self.step.get().is_multiple_of(every))
    }

    /// Evaluates where the settings ask for it after the last committed step and that was not done yet; how that ends the
    /// run, where it does.
    fn evaluate_if_due(&mut self) -> Result<Option<Ending>> {
        let eval = &self.settings.eval;
        let is_due = if self.step == Step::ZERO { eval.at_start } else { self.is_at(eval.every) };
        if !is_due || self.evaluator.has_evaluated(self.step) {
            return Ok(None);
        }
        let ending = self.evaluate()?;
        if let Some(figures) = self.evaluator.figures_of(self.step) {
            self.trend.note(figures.loss);
        }
        Ok(ending)
    }

    fn evaluate(&mut self) -> Result<Option<Ending>> {
        let outcome = self.evaluator.evaluate(self.step, &self.state.model, &mut self.recovery)?;
        if outcome == EvalOutcome::Complete {
            self.sample()?;
        }
        Ok(outcome.ending())
    }

    /// Tells of memory as it is now.
    fn sample(&mut self) -> Result<()> {
        let sample = self.monitor.sample(self.step, &self.recovery.memory)?;
        self.recovery.tell(sample)
    }

    /// Saves the state as it is after the last committed step.
    fn save(&mut self) -> Result<PathBuf> {
        let (begun, step) = (Instant::now(), self.step);
        let checkpoints = Checkpoints::in_run(&self.folder.path);
        let path = checkpoints.of(step);
        let bytes = loop {
            let save = || checkpoint::save(&path, &self.state, self.progress());
            match self.recovery.injector.during(step, Phase::Save, save) {
                Err(TrainError::Engine(error)) if error.is_oom() => {
                    if let Some(stop) = self.recovery.failed(step, Phase::Save, error)? {
                        return Err(self.line_error(stop));
                    }
                }
                saved => break saved?,
            }
        };
        self.recovery.recovered();
        if let Some(figures) = self.evaluator.figures_of(step) {
            checkpoints.note_loss(step, figures.loss)?;
        }
        checkpoints.prune(self.settings.save.keep)?;
        let name = path.strip_prefix(&self.folder.path).unwrap_or(&path).display().to_string();
        let seconds = begun.elapsed().as_secs_f64();
        self.recovery.tell(Event::Saved { step, path: name, bytes, seconds })?;
        self.recovery.clean_if_due(step, Moment::AfterSave)?;
        Ok(path)
    }

    /// What a checkpoint holds beside tensors.
    fn progress(&self) -> Progress {
        Progress {
            step: self.step,
            next_sample: self.next_sample,
            guard: self.recovery.guard.clone(),
            line: self.recovery.memory.line,
            host_line: self.recovery.memory.host_line,
            figures: Figures {
                recent_losses: self.losses.clone(),
                samples_seen: self.samples_seen,
                memory: self.recovery.figures.clone(),
                wall_seconds: self.wall_seconds(),
            },
            trend: self.trend.clone(),
            evaluation: self.evaluator.last.clone(),
            is_sized: self.is_sized,
        }
    }

    /// Seconds of all starts.
    fn wall_seconds(&self) -> f64 {
        self.earlier_seconds + self.recovery.journal.seconds()
    }

    /// Saves the state and writes the summary. A last evaluation that fails costs neither.
    fn finish(&mut self, mut ending: Ending) -> Result<Outcome> {
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
        let checkpoint = self.save()?;
        self.recovery.tell(Event::Stopped { step: self.step, ending })?;
        let summary = self.summary(stopped)?;
        self.folder.summary(&summary)?;
        evaluated?;
        let least_line = stop.as_ref().and_then(|_| self.recovery.least_line());
        Ok(Outcome { summary, folder: self.folder.path.clone(), checkpoint, stop, least_line })
    }

    /// Does what can still be done after an error, and says where the last good checkpoint is.
    fn ended_by(&mut self, error: TrainError) -> TrainError {
        // Best effort, here and below: the error itself is what the caller hears.
        if matches!(error, TrainError::Engine(_)) && !self.state.is_half_way() {
            let _ = self.save();
        }
        let ending = match &error {
            TrainError::Line { stop, .. } => Ending::Line { stop: Stop::clone(stop) },
            other => Ending::Error { message: other.to_string() },
        };
        let _ = self.recovery.tell(Event::Stopped { step: self.step, ending });
        match error {
            TrainError::File { path, source } => TrainError::Unwritten {
                path,
                source,
                folder: self.folder.path.clone(),
                checkpoint: self.newest_checkpoint(),
            },
            other => other,
        }
    }

    /// The run ends inside an update or a save: its state is not to be saved, and the checkpoint before it counts.
    fn line_error(&self, stop: Stop) -> TrainError {
        TrainError::Line { stop: Box::new(stop), checkpoint: self.newest_checkpoint().unwrap_or_default() }
    }

    fn newest_checkpoint(&self) -> Option<PathBuf> {
        Checkpoints::in_run(&self.folder.path).newest().map(|(_, path)| path)
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
            weights_sha256: attempt(|| weights_sha256(&workload.state()))?,
            cache: workload.cache(),
            wall_seconds: self.wall_seconds(),
            stopped,
        })
    }
}
