//! The trainer: steps, evaluations and checkpoints until the run ends.

use std::time::Instant;

use lowtide_core::{Bytes, Ending, Event, Injection, Numerics, NumericsChoice, Record, Step, Stop};
use lowtide_settings::{MicroBatchChoice, RunSettings};
use lowtide_torch::cuda::AllocatorSettings;
use lowtide_torch::numerics::numerics;
use lowtide_torch::{DeviceFacts, GradScaler};

use super::choices::Choices;
use super::ending::Outcome;
use super::sizing::Trial;
use super::start::{Standing, make_room, standing};
use crate::error::Result;
use crate::evaluation::{EvalOutcome, Evaluator, Trend};
use crate::folder::{FolderChoice, OpenRun, RecentLosses, RunFolder, Schedule, ScheduleLine, Start};
use crate::journal::Journal;
use crate::memory::{DeviceMemory, Injector, Moment, Monitor, Profile, Recovery};
use crate::requests::Requests;
use crate::step::{Model, PhaseError, State, StepFigures, StepSpec, learning_rate};
use crate::workload::Workload;

/// What a run is given.
pub struct TrainJob<'a> {
    /// The settings, checked.
    pub settings: &'a RunSettings,
    /// The device it runs on.
    pub facts: &'a DeviceFacts,
    /// Where the CUDA allocator's settings come from.
    pub allocator: &'a AllocatorSettings,
    /// What was asked of the engine, written down for a resume.
    pub choice: NumericsChoice,
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
    pub(super) settings: &'a RunSettings,
    pub(super) requests: &'a Requests,
    pub(super) folder: RunFolder,
    pub(super) state: State<'a>,
    pub(super) recovery: Recovery<'a>,
    pub(super) evaluator: Evaluator<'a>,
    pub(super) monitor: Monitor,
    /// What decides the bits of this start.
    pub(super) numerics: Numerics,
    /// Followed until the guard goes down a rung: from then on it decides alone.
    pub(super) schedule: Option<Schedule>,
    /// Steps committed.
    pub(super) step: Step,
    /// The next sample to train on: the data cursor.
    pub(super) next_sample: u64,
    /// Whether the guard has its first micro-batch.
    pub(super) is_sized: bool,
    /// Samples computed in committed steps, counted piece by piece.
    pub(super) samples_seen: u64,
    pub(super) losses: RecentLosses,
    pub(super) trend: Trend,
    /// Seconds of the starts before this one.
    pub(super) earlier_seconds: f64,
    /// Seconds spent in the steps of this start, and their samples.
    pub(super) speed: (f64, u64),
}

impl<'a> Trainer<'a> {
    /// Checks that the model can fit, then opens the folder. Nothing is written before all checks are passed.
    pub fn prepare(
        job: TrainJob<'a>,
        workload: &'a dyn Workload,
        listener: impl FnMut(&Record) + 'a,
    ) -> Result<Trainer<'a>> {
        let TrainJob { settings, facts, allocator, choice, folder, requests, injections, schedule } = job;
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
        let Standing { progress, events_bytes, events: mut load_events } =
            standing(&folder, &choices, &memory, &mut state, &injector)?;
        let step = progress.step;
        let numerics = numerics(choice, facts)?;
        let changes = progress.numerics.as_ref().map_or_else(Vec::new, |then| numerics.changes_since(then));
        if !changes.is_empty() {
            load_events.insert(0, Event::NumericsChanged { step, changes });
        }
        let OpenRun { folder, events, notes } = folder.open(settings, step, events_bytes)?;
        load_events.extend(notes.into_iter().map(|message| Event::Note { step, message }));
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
            numerics,
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
        begun.map_err(|error| trainer.folder.shown_error(error))?;
        Ok(trainer)
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
            numerics: Some(Box::new(self.numerics.clone())),
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
            if self.requests.take_save() {
                self.save_as_asked()?;
            } else if self.is_at(self.settings.save.every) {
                self.save()?;
            } else if self.folder.is_look_due() {
                self.look_after_folder()?;
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

    pub(super) fn evaluate(&mut self) -> Result<Option<Ending>> {
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
}
