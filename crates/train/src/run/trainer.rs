//! The trainer: steps, evaluations and checkpoints until the run ends.

use std::num::NonZeroU32;
use std::time::Instant;

use lowtide_core::{Bytes, Ending, Event, Injection, Numerics, NumericsChoice, Percent, Record, Step, Stop, Usage};
use lowtide_settings::{MicroBatchChoice, Origins, RunSettings, SettingsError};
use lowtide_torch::cuda::AllocatorSettings;
use lowtide_torch::numerics::numerics;
use lowtide_torch::{DeviceFacts, GradScaler};

use super::choices::Choices;
use super::ending::Outcome;
use super::sizing::Trial;
use super::start::{Standing, make_room, standing};
use crate::error::{Result, TrainError};
use crate::evaluation::{EvalOutcome, Evaluator, Trend};
use crate::folder::{FolderChoice, OpenRun, RecentLosses, RunFolder, Schedule, ScheduleLine, Start};
use crate::journal::Journal;
use crate::memory::{DeviceMemory, GraphMemory, Injector, Moment, Monitor, Profile, Recovery};
use crate::ranks::{Shares, Team};
use crate::requests::Requests;
use crate::step::{Asked, Companions, Model, State, StepFailure, StepFigures, StepSpec, learning_rate};
use crate::time_profile::Profiling;
use crate::workload::{PartOf, Workload};

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
    /// Where it is written down, and whether it starts anew: the first rank's to know, `None` on all others.
    pub folder: Option<FolderChoice>,
    /// Those who train together.
    pub team: &'a Team,
    /// What is asked of it while it trains.
    pub requests: &'a Requests,
    /// Errors that it is to meet, for tests. Usually empty.
    pub injections: &'a [Injection],
    /// The schedule of another run, to be followed until memory asks for something else.
    pub schedule: Option<Schedule>,
    /// Steps whose time is to be told apart.
    pub profile: Option<NonZeroU32>,
}

/// A run that is ready to train: the model fits, the folder is open, the first checkpoint is written.
pub struct Trainer<'a> {
    pub(super) settings: &'a RunSettings,
    pub(super) requests: &'a Requests,
    /// Where all is written, by the first rank.
    pub(super) folder: Option<RunFolder>,
    pub(super) state: State<'a>,
    /// The samples of a step, divided among ranks.
    shares: Shares,
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
    /// What is asked of any rank and not done yet.
    pub(super) asked: Asked,
    pub(super) profiling: Profiling,
    /// The most that the last evaluation needed, without graphs.
    evaluation_peak: Option<Bytes>,
}

impl<'a> Trainer<'a> {
    /// Checks that the model can fit, then opens the folder. Nothing is written before all checks are passed.
    pub fn prepare(
        job: TrainJob<'a>,
        workload: &'a dyn Workload,
        listener: impl FnMut(&Record) + 'a,
    ) -> Result<Trainer<'a>> {
        let TrainJob {
            settings,
            facts,
            allocator,
            choice,
            folder,
            team,
            requests,
            injections,
            schedule,
            profile: profiled,
        } = job;
        let checked = check(settings, workload, team, schedule.as_ref()).and_then(|()| {
            let memory = DeviceMemory::resolve(&settings.memory, facts, allocator, workload.data_reserve())?;
            let model = Model::new(settings, facts, workload);
            if let Some(schedule) = &schedule {
                schedule.agrees(|measures| model.kind_in(measures))?;
            }
            Ok((memory, model))
        });
        let (memory, model) = team.settle(PREPARING, checked)?;
        let shares = Shares::of(settings, team, room_for_samples(&model, &memory))?;
        if !team.is_alone() {
            let train = PartOf { own: shares.part(0).1.into(), whole: settings.train.batch.into() };
            workload.expect(train, Evaluator::expected_part(settings, workload, team));
        }
        let profile = Profile::of(facts, memory.line);
        let mut choices = Choices::of(settings, &model, team, shares.largest(), schedule.as_ref(), profile);
        let mut state = State::new(settings, model);
        state.stay_under(memory.roof());
        make_room(&mut state, &memory, &mut choices, team)?;
        let start = folder.as_ref().map_or(Start::New, FolderChoice::start);
        let is_first = team.of_first(PREPARING, Some(folder.as_ref().is_some_and(FolderChoice::is_fresh)))?;
        let injector = Injector::new(facts.device, team.rank(), injections);
        let Standing { progress, events_bytes, events: mut load_events } =
            standing(folder.as_ref(), &choices, &memory, &mut state, &injector, team)?;
        let step = progress.step;
        let numerics = team.settle(PREPARING, numerics(choice, facts).map_err(TrainError::from))?;
        let changes = progress.numerics.as_ref().map_or_else(Vec::new, |then| numerics.changes_since(then));
        if !changes.is_empty() {
            load_events.insert(0, Event::NumericsChanged { step, changes });
        }
        let opened = folder.map(|folder| folder.open(settings, step, events_bytes)).transpose();
        let (folder, events, notes) = match team.settle(PREPARING, opened)? {
            Some(OpenRun { folder, events, notes }) => (Some(folder), Some(events), notes),
            None => (None, None, Vec::new()),
        };
        let sharded = state
            .shards
            .as_ref()
            .map(|_| format!("each of {} ranks holds a part of the optimizer state", team.world()));
        load_events
            .extend(notes.into_iter().chain(sharded).chain(shares.note()).map(|message| Event::Note { step, message }));
        let journal = Journal::new(events, listener);
        let figures = progress.figures;
        let clean = settings.memory.clean;
        let mut trainer = Trainer {
            settings,
            requests,
            folder,
            state,
            shares,
            recovery: Recovery::new(team, memory, progress.guard, journal, injector, clean, figures.memory),
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
            asked: Asked::default(),
            profiling: Profiling::new(profiled.filter(|_| team.is_first())),
            evaluation_peak: None,
        };
        let begun = trainer.begin(start, load_events);
        let begun = begun.and_then(|()| if is_first { trainer.save().map(drop) } else { Ok(()) });
        if let (Err(_), Start::New, Some(folder)) = (&begun, start, &trainer.folder) {
            folder.abandon();
        }
        begun.map_err(|error| trainer.shown_error(error))?;
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
            shares: &self.shares,
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
            if self.is_stop_asked() {
                return Ok(Ending::Interrupted);
            }
            if let Some(stop) = self.profiled_step()? {
                return Ok(Ending::Line { stop });
            }
            if let Some(ending) = self.evaluate_if_due()? {
                return Ok(ending);
            }
            let Asked { save, restore, sample, .. } = self.take_asked();
            if sample {
                self.sample()?;
            }
            if save {
                self.save_as_asked()?;
            } else if restore || self.is_at(self.settings.save.every) {
                self.save()?;
            } else if self.folder.as_ref().is_some_and(RunFolder::is_look_due) {
                self.look_after_folder()?;
            }
        }
    }

    /// Whether the run is to end; with other ranks, as all of them heard in the last step.
    fn is_stop_asked(&self) -> bool {
        if self.recovery.team.is_alone() { self.requests.stop_asked() } else { self.asked.stop }
    }

    /// What is to be done after a step, and is done from now on.
    fn take_asked(&mut self) -> Asked {
        if self.recovery.team.is_alone() {
            let sample = self.monitor.is_due(self.step);
            return Asked { save: self.requests.take_save(), sample, ..Asked::default() };
        }
        let asked = self.asked;
        self.asked = Asked { stop: asked.stop, ..Asked::default() };
        asked
    }

    /// What is asked of this rank before it makes a step with others.
    fn asked_here(&self, step: Step) -> Asked {
        let team = self.recovery.team;
        if team.is_alone() {
            return Asked::default();
        }
        let sample = team.is_first() && self.monitor.is_due(step);
        let here = Asked { stop: self.requests.stop_asked(), save: self.requests.take_save(), restore: false, sample };
        here.or(self.asked)
    }

    /// Makes the next step, and takes note of where its time goes where that is asked.
    fn profiled_step(&mut self) -> Result<Option<Stop>> {
        let problem = self.profiling.before_step(self.state.model.device);
        self.note(problem)?;
        let stop = self.step()?;
        let folder = self.folder.as_ref().map(RunFolder::path);
        let problem = folder.and_then(|folder| self.profiling.after_step(folder));
        self.note(problem)?;
        Ok(stop)
    }

    /// Ends a profile that has fewer steps than it should.
    pub(super) fn end_profile(&mut self) -> Result<()> {
        let problem = self.folder.as_ref().and_then(|folder| self.profiling.end(folder.path()));
        self.note(problem)
    }

    fn note(&mut self, message: Option<String>) -> Result<()> {
        let step = self.step;
        message.map_or(Ok(()), |message| self.recovery.tell(Event::Note { step, message }))
    }

    /// Makes the next step, trying again as the guard says.
    fn step(&mut self) -> Result<Option<Stop>> {
        let step = self.step.next();
        let rate = learning_rate(&self.settings.optimizer, step.get(), self.settings.train.steps);
        if let Some(schedule) = &self.schedule {
            self.recovery.guard.follow(schedule.at(step, self.recovery.guard.measures()));
        }
        let begun = Instant::now();
        self.recovery.team.take_waited();
        self.recovery.clean_if_due(step, Moment::InStep)?;
        self.recovery.memory.reset_peaks()?;
        let resting = self.recovery.memory.resting(self.state.model.parameter_bytes())?;
        loop {
            let measures = self.recovery.guard.measures();
            let (team, whole) = (self.recovery.team, self.settings.train.batch);
            let (first, count) = self.shares.part(self.next_sample);
            let micro_batch = self.shares.micro_batch(measures.micro_batch);
            let is_last = step.get() >= self.settings.train.steps;
            let next = (!is_last).then_some(first + u64::from(whole));
            let spec = StepSpec { step, first, count, micro_batch, whole, measures, next };
            let (memory, asked) = (&self.recovery.memory, self.asked_here(step));
            let mut companions = Companions { team, memory, resting, asked, tightest: None };
            let made = self.state.step(&spec, rate, &self.recovery.injector, &mut companions);
            let tightest = companions.tightest;
            self.asked = companions.asked;
            if made.is_err() {
                self.state.graphs.give_back();
            }
            self.recovery.memory.note_graphs(self.state.graphs.held())?;
            match made {
                Ok(figures) => {
                    self.commit(&spec, figures, rate, (resting, tightest), begun.elapsed().as_secs_f64())?;
                    return Ok(None);
                }
                Err(StepFailure::Ended(error)) => return Err(error),
                Err(StepFailure::Failed(failures)) => match self.recovery.failed(step, &failures)? {
                    Some(stop) if self.state.is_half_way() => return Err(self.line_error(stop)),
                    Some(stop) => return Ok(Some(stop)),
                    None if self.recovery.guard.measures() != measures => self.schedule = None,
                    None => {}
                },
            }
        }
    }

    fn commit(
        &mut self,
        spec: &StepSpec,
        figures: StepFigures,
        rate: f64,
        (resting, tightest): (Bytes, Option<Usage>),
        seconds: f64,
    ) -> Result<()> {
        let StepSpec { step, whole: count, measures, .. } = *spec;
        let StepFigures { loss, samples, skipped } = figures;
        let reading = self.recovery.memory.reading()?;
        if !self.recovery.team.is_alone() {
            self.monitor.note(seconds, self.recovery.team.take_waited().as_secs_f64());
        }
        self.step = step;
        self.next_sample += u64::from(count);
        self.speed = (self.speed.0 + seconds, self.speed.1 + samples);
        self.samples_seen += samples;
        self.losses.push(loss);
        self.recovery.figures.note(&reading);
        self.recovery.recovered();

        let model = &self.state.model;
        let tokens = model.workload.has_tokens().then_some(samples * model.workload.targets_per_sample());
        if let Some(folder) = &mut self.folder {
            folder.schedule.write(&ScheduleLine::new(step, count, &measures, model.kind_in(&measures)))?;
        }
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
        self.recovery.committed(step, resting, &reading, tightest)?;
        let notes = self.state.graphs.take_notes();
        notes.into_iter().try_for_each(|message| self.note(Some(message)))
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
        self.make_room_for_evaluation()?;
        let outcome = self.evaluator.evaluate(self.step, &self.state.model, &mut self.recovery)?;
        let (peak, held) = (self.recovery.memory.reading()?.allocated_peak, self.state.graphs.held());
        self.evaluation_peak = Some(peak.saturating_sub(held.pool).saturating_sub(held.gradients));
        if outcome == EvalOutcome::Complete {
            self.sample()?;
        }
        Ok(outcome.ending())
    }

    /// Lets go of CUDA graphs where an evaluation may not fit beside them.
    fn make_room_for_evaluation(&mut self) -> Result<()> {
        let held = self.state.graphs.held();
        let fits = self.evaluation_peak.zip(self.recovery.memory.roof().limit()).is_some_and(|(peak, roof)| {
            peak.saturating_add(held.pool).saturating_add(held.gradients) <= roof.of_percent(BESIDE_GRAPHS)
        });
        if held == GraphMemory::default() || fits {
            return Ok(());
        }
        self.state.graphs.give_back();
        self.recovery.memory.note_graphs(GraphMemory::default())?;
        self.recovery.clean(self.step)
    }

    /// Tells of memory as it is now, on every rank.
    fn sample(&mut self) -> Result<()> {
        let sample = self.monitor.sample(self.step, &self.recovery.memory)?;
        let team = self.recovery.team;
        if team.is_alone() {
            return self.recovery.tell(sample);
        }
        let all = team.gather("telling of memory", Some(&sample))?;
        (0..)
            .zip(all)
            .filter_map(|(rank, sample)| Some((rank, sample?)))
            .try_for_each(|(rank, sample)| self.recovery.journal.tell_of(Some(rank), sample))
    }
}

/// Share of the limit that an evaluation beside CUDA graphs may come to.
const BESIDE_GRAPHS: Percent = Percent::from_hundredths(90_00).expect("90 % is in range");

/// What ranks do meanwhile.
const PREPARING: &str = "getting ready";

/// What the device has beside weights, gradients and the optimizer's state.
fn room_for_samples(model: &Model<'_>, memory: &DeviceMemory) -> Option<Bytes> {
    let held = model.weight_bytes().saturating_add(model.parameter_bytes().saturating_mul(3));
    Some(memory.roof().limit()?.saturating_sub(held))
}

/// Refuses what can be known to be wrong before anything is allocated.
fn check(settings: &RunSettings, workload: &dyn Workload, team: &Team, schedule: Option<&Schedule>) -> Result<()> {
    if let Some(schedule) = schedule {
        schedule.fits(settings.train.steps, settings.train.batch)?;
    }
    let refuse = |problem: String| SettingsError::refused("train.batch", problem, &Origins::default());
    let (batch, world) = (settings.train.batch, team.world());
    if batch < world {
        return Err(refuse(format!("a step has {batch} samples, and {world} ranks are to have one at least")).into());
    }
    if world > 1 && !workload.splits() {
        let problem = format!("the batches of `{}` cannot be cut, so it trains on one rank", workload.name());
        return Err(refuse(problem).into());
    }
    Evaluator::check(settings, workload)
}
