//! The loop: steps, evaluations and checkpoints until the run ends, with the guard deciding what happens when memory runs
//! out.

use std::path::PathBuf;
use std::time::Instant;

use lowtide_core::{Action, Bytes, Ending, Event, Measures, Phase, Record, Rung, Signal, Step, Stop, Usage};
use lowtide_settings::{MicroBatchChoice, RunSettings};
use lowtide_torch::cuda::AllocatorSettings;
use lowtide_torch::{DeviceFacts, GradScaler, TorchError};

use crate::best;
use crate::checkpoint;
use crate::cleaning::{Moment, is_due};
use crate::error::{Result, TrainError};
use crate::inject::Injection;
use crate::learning_rate::learning_rate;
use crate::memory::DeviceMemory;
use crate::metrics;
use crate::monitor::Monitor;
use crate::prepare::{Choices, Standing, make_room, new_state, standing};
use crate::profile::Profile;
use crate::progress::Progress;
use crate::requests::Requests;
use crate::run_folder::{FolderChoice, RunFolder, Start};
use crate::schedule::{Schedule, ScheduleLine};
use crate::step::{Asked, Failed, Made, State};
use crate::summary::{Summary, device_name};
use crate::tiles;
use crate::trend::Trend;
use crate::workload::Workload;

/// What a run is told.
pub struct Plan<'a> {
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
pub struct Run<'a> {
    pub(crate) settings: &'a RunSettings,
    pub(crate) facts: &'a DeviceFacts,
    pub(crate) requests: &'a Requests,
    pub(crate) memory: DeviceMemory,
    pub(crate) state: State<'a>,
    pub(crate) folder: RunFolder,
    pub(crate) progress: Progress,
    /// Followed until the guard goes down a rung: from then on it decides alone.
    schedule: Option<Schedule>,
    pub(crate) now: ThisStart,
    pub(crate) monitor: Monitor,
    outlook: Outlook<'a>,
}

/// What a run is put together from.
pub(crate) struct Parts<'a> {
    pub(crate) settings: &'a RunSettings,
    pub(crate) facts: &'a DeviceFacts,
    pub(crate) requests: &'a Requests,
    pub(crate) memory: DeviceMemory,
    pub(crate) state: State<'a>,
    pub(crate) folder: RunFolder,
    pub(crate) progress: Progress,
    pub(crate) schedule: Option<Schedule>,
}

/// Who is told of every event.
type Outlook<'a> = Box<dyn FnMut(&Record) + 'a>;

/// Figures of this start of the run.
pub(crate) struct ThisStart {
    clock: Instant,
    /// Seconds of the starts before it.
    earlier_seconds: f64,
    /// Seconds spent in its steps.
    pub(crate) training_seconds: f64,
    /// Samples of its steps.
    pub(crate) samples: u64,
    /// Pixels along each side of the tiles that frames are evaluated in.
    pub(crate) eval_tile: Option<u32>,
    /// The last evaluation that was given up: after which step, and why.
    pub(crate) given_up: Option<Stop>,
    /// The most that was taken from the device and not in use after an evaluation.
    pub(crate) idle_after_eval: Option<Bytes>,
    /// Errors since work last went well.
    open_errors: u64,
    /// What was in use and what was asked for when memory last ran out, where the error said so.
    last_need: Option<Bytes>,
    /// Times the allocator had to empty its cache.
    pub(crate) retries: u64,
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

impl<'a> Run<'a> {
    /// Checks that the model can fit, then opens the folder. Nothing is written before all checks are passed.
    pub fn prepare(plan: Plan<'a>, workload: &'a dyn Workload, outlook: impl FnMut(&Record) + 'a) -> Result<Run<'a>> {
        let Plan { settings, facts, allocator, folder, requests, injections, schedule } = plan;
        if let Some(schedule) = &schedule {
            schedule.fits(settings.train.steps, settings.train.batch)?;
        }
        tiles::check(&settings.eval, workload)?;
        metrics::check(&settings.eval, workload)?;
        let memory = DeviceMemory::resolve(&settings.memory, facts, allocator, workload.data_reserve())?;
        let mut state = new_state(settings, facts, workload, injections);
        if let Some(schedule) = &schedule {
            schedule.agrees(|measures| state.kind_in(measures))?;
        }
        let mut choices = Choices::of(settings, &state, schedule.as_ref(), Profile::of(facts, memory.line));
        make_room(&mut state, &memory, &mut choices)?;
        let start = folder.start();
        let first = start == Start::New || folder.has_done_nothing();
        let Standing { progress, is_fresh, load_events } = standing(&folder, &choices, &memory, &mut state)?;
        let folder = folder.open(settings, progress.step)?;
        let parts = Parts { settings, facts, requests, memory, state, folder, progress, schedule };
        let mut run = Run::new(parts, outlook);
        let begun =
            run.begin(start, is_fresh, load_events).and_then(|()| if first { run.save().map(drop) } else { Ok(()) });
        if begun.is_err() && start == Start::New {
            run.folder.abandon();
        }
        begun.map(|()| run)
    }

    pub(crate) fn new(parts: Parts<'a>, outlook: impl FnMut(&Record) + 'a) -> Run<'a> {
        let Parts { settings, facts, requests, memory, state, folder, progress, schedule } = parts;
        let eval_tile =
            state.workload.tiling().ok().and_then(|tiling| tiling.first(settings.eval.tile, progress.found_tile));
        let now = ThisStart::new(progress.figures.wall_seconds, eval_tile);
        let (monitor, outlook) = (Monitor::new(&settings.watch), Box::new(outlook));
        Run { settings, facts, requests, memory, state, folder, progress, schedule, now, monitor, outlook }
    }

    /// Trains to the end.
    pub fn train(mut self) -> Result<Outcome> {
        let ended = self.steps().and_then(|ending| self.finish(ending));
        ended.map_err(|error| self.ended_by(error))
    }

    /// Steps, evaluations and checkpoints, until something ends them.
    fn steps(&mut self) -> Result<Ending> {
        // Before the first step, or one that an earlier start was ended in.
        let was_open = !self.has_evaluated();
        if let Some(ending) = self.evaluate_if_due()?.ending() {
            return Ok(ending);
        }
        if was_open && self.has_evaluated() && self.progress.step != Step::ZERO {
            // Its checkpoint is there; now it may be the best.
            self.save()?;
        }
        loop {
            let step = self.progress.step.get();
            if step >= self.settings.train.steps {
                return Ok(Ending::Finished);
            }
            if self.progress.trend.outlasts(self.settings.eval.patience) {
                self.tell_of_early_stop()?;
                return Ok(Ending::Finished);
            }
            if self.requests.stop_asked() {
                return Ok(Ending::Interrupted);
            }
            if let Some(stop) = self.step()? {
                return Ok(Ending::Line { stop });
            }
            if let Some(ending) = self.evaluate_if_due()?.ending() {
                return Ok(ending);
            }
            self.sample_if_due()?;
            if self.requests.take_save() || due(self.settings.save.every, step + 1) {
                self.save()?;
            }
        }
    }

    fn tell_of_early_stop(&mut self) -> Result<()> {
        let Trend { best, not_better, .. } = self.progress.trend;
        self.tell(Event::StoppedEarly { step: self.progress.step, evaluations: not_better, best })
    }

    /// Makes the next step, trying again as the guard says.
    fn step(&mut self) -> Result<Option<Stop>> {
        let step = self.progress.step.next();
        let asked = Asked { step, first: self.progress.next_sample, count: self.settings.train.batch };
        let rate = learning_rate(&self.settings.optimizer, step.get(), self.settings.train.steps);
        if let Some(schedule) = &self.schedule {
            let guard = &mut self.progress.guard;
            guard.follow(schedule.at(step, guard.measures()));
        }
        let begun = Instant::now();
        self.clean_if_due(step, Moment::InStep)?;
        self.memory.reset_peaks()?;
        let resting = self.resting()?;
        loop {
            match self.state.step(asked, &self.measures(), rate) {
                Ok(made) => {
                    self.commit(step, made, rate, resting, begun.elapsed().as_secs_f64())?;
                    return Ok(None);
                }
                Err(Failed { phase, error }) => {
                    let Some(stop) = self.failed(step, phase, error)? else { continue };
                    return if self.state.is_half_way() { Err(self.stopped_half_way(stop)) } else { Ok(Some(stop)) };
                }
            }
        }
    }

    fn commit(&mut self, step: Step, made: Made, rate: f64, resting: Bytes, seconds: f64) -> Result<()> {
        let batch = self.settings.train.batch;
        let measures = self.measures();
        let reading = self.memory.reading()?;
        self.progress.step = step;
        self.progress.next_sample += u64::from(batch);
        self.now.training_seconds += seconds;
        self.now.samples += made.samples;
        let figures = &mut self.progress.figures;
        figures.samples_seen += made.samples;
        figures.loss(made.loss);
        figures.memory(&reading);
        self.recovered();

        self.folder.schedule(&ScheduleLine::new(step, batch, &measures, self.state.kind_in(&measures)))?;
        if made.skipped {
            let scale = self.state.scaler.as_ref().map_or(1.0, GradScaler::scale);
            self.tell(Event::Skipped { step, scale })?;
        }
        self.tell(Event::StepDone {
            step,
            loss: made.loss,
            learning_rate: rate,
            samples: made.samples,
            tokens: self.state.workload.has_tokens().then_some(made.samples * self.state.targets_per_sample),
            seconds,
            allocated: reading.allocated,
            peak: reading.allocated_peak,
            reserved: reading.reserved_peak,
            micro_batch: measures.micro_batch,
        })?;
        if reading.retries > self.now.retries {
            self.now.retries = reading.retries;
            let warning = self.progress.guard.on(Signal::RetriesRose);
            self.carry_out(step, warning)?;
        }
        let usage = Usage { resting, peak: reading.allocated_peak, line: self.memory.roof() };
        let answer = self.progress.guard.on(Signal::Committed { step, usage });
        self.carry_out(step, answer)?;
        self.clean_if_due(step, Moment::AfterStep { allocated: reading.allocated, reserved: reading.reserved })
    }

    /// Tells of a failure and does what the guard says; `Some` where there is to be no other try.
    pub(crate) fn failed(&mut self, step: Step, phase: Phase, error: TorchError) -> Result<Option<Stop>> {
        if !error.is_oom() {
            return Err(error.into());
        }
        self.note_failure(step, phase, &error)?;
        match self.progress.guard.on(Signal::Failed { step, phase }) {
            Action::Stop(stop) | Action::GiveUp(stop) => {
                self.now.open_errors = 0;
                Ok(Some(stop))
            }
            answer => {
                self.carry_out(step, answer)?;
                Ok(None)
            }
        }
    }

    /// Counts an out-of-memory error and tells of it.
    pub(crate) fn note_failure(&mut self, step: Step, phase: Phase, error: &TorchError) -> Result<()> {
        self.progress.figures.oom_errors += 1;
        self.progress.figures.memory(&self.memory.reading()?);
        self.now.open_errors += 1;
        if let TorchError::Oom { oom, .. } = error {
            self.now.last_need = oom.requested.zip(oom.allocated).map(|(asked, held)| held.saturating_add(asked));
        }
        self.tell(out_of_memory(step, phase, error))
    }

    /// The work that had failed was done.
    pub(crate) fn recovered(&mut self) {
        self.progress.figures.oom_recovered += std::mem::take(&mut self.now.open_errors);
    }

    /// The work that had failed was given up.
    pub(crate) fn forget_open_errors(&mut self) {
        self.now.open_errors = 0;
    }

    pub(crate) fn carry_out(&mut self, step: Step, action: Action) -> Result<()> {
        match action {
            Action::Continue | Action::GiveUp(_) | Action::Stop(_) => Ok(()),
            Action::Clean { .. } => self.clean(step),
            Action::Retry { rung, measures, reason } => {
                self.clean(step)?;
                if rung != Rung::Clean && reason.phase() != Some(Phase::Eval) {
                    self.schedule = None;
                }
                self.tell(Event::RungTaken { step, rung, measures, reason })
            }
            Action::Climb { measures, reason } => self.tell(Event::Climbed { step, measures, reason }),
        }
    }

    /// The line under which the last failed try would have come one request further: the least that can be enough.
    pub(crate) fn least_line(&self) -> Option<Bytes> {
        let beside = self.memory.line.limit()?.saturating_sub(self.memory.limit.limit()?);
        Some(self.now.last_need?.saturating_add(beside))
    }

    pub(crate) fn clean(&mut self, step: Step) -> Result<()> {
        let cleaned = self.memory.timed_clean()?;
        self.tell(cleaned.event(step))
    }

    /// Cleans where the settings ask for it at this moment.
    pub(crate) fn clean_if_due(&mut self, step: Step, moment: Moment) -> Result<()> {
        let room = self.memory.roof().limit().filter(|_| self.facts.device.is_cuda());
        if is_due(self.settings.memory.clean, moment, step, room) { self.clean(step) } else { Ok(()) }
    }

    /// Saves the state as it is after the last committed step.
    pub(crate) fn save(&mut self) -> Result<PathBuf> {
        let begun = Instant::now();
        let folder = self.folder.checkpoints();
        self.progress.figures.wall_seconds = self.now.wall_seconds();
        let (path, bytes) = loop {
            let save = || checkpoint::save(&folder, &self.state, &self.progress);
            match self.state.injector.during(self.progress.step, Phase::Save, save) {
                Err(TrainError::Engine(error)) if error.is_oom() => {
                    if let Some(stop) = self.failed(self.progress.step, Phase::Save, error)? {
                        let checkpoint = checkpoint::newest(&folder).unwrap_or_default();
                        return Err(TrainError::Line { stop: Box::new(stop), checkpoint });
                    }
                }
                result => break result?,
            }
        };
        self.recovered();
        let step = self.progress.step;
        if let Some(evaluated) = &self.progress.evaluated
            && evaluated.step == step
        {
            best::note(&folder, step, evaluated.loss)?;
        }
        checkpoint::prune(&folder, self.settings.save.keep)?;
        let name = path.strip_prefix(self.folder.path()).unwrap_or(&path).display().to_string();
        self.tell(Event::Saved { step, path: name, bytes, seconds: begun.elapsed().as_secs_f64() })?;
        self.clean_if_due(step, Moment::AfterSave)?;
        Ok(path)
    }

    /// What a step holds whatever its micro-batch is: what is held now, and the gradients, which are there from its
    /// second piece on.
    pub(crate) fn resting(&self) -> Result<Bytes> {
        Ok(self.memory.reading()?.allocated.saturating_add(self.state.gradient_bytes()))
    }

    /// The measures in force.
    pub(crate) fn measures(&self) -> Measures {
        self.progress.guard.measures()
    }

    /// Tells of the run, and chooses its first micro-batch where that is left to it.
    fn begin(&mut self, start: Start, is_fresh: bool, load_events: Vec<Event>) -> Result<()> {
        self.announce(start)?;
        load_events.into_iter().try_for_each(|event| self.tell(event))?;
        let is_open = self.settings.train.micro_batch == MicroBatchChoice::Auto && self.state.workload.splits();
        if is_fresh && is_open && self.schedule.is_none() {
            return self.choose_micro_batch();
        }
        self.progress.is_sized = true;
        Ok(())
    }

    fn announce(&mut self, start: Start) -> Result<()> {
        self.tell(Event::RunStarted {
            workload: self.state.workload.name().to_owned(),
            device: device_name(self.facts.device),
            seed: self.settings.seed,
            batch: self.settings.train.batch,
            micro_batch: self.measures().micro_batch,
            line: self.memory.line,
            host_line: self.memory.host_line,
            parameters: self.state.parameter_count(),
            resumed_at: (start == Start::Resume).then_some(self.progress.step),
        })
    }

    pub(crate) fn tell(&mut self, event: Event) -> Result<()> {
        let record = Record::new(self.now.clock.elapsed().as_secs_f64(), event);
        self.folder.event(&record)?;
        (self.outlook)(&record);
        Ok(())
    }
}

impl ThisStart {
    fn new(earlier_seconds: f64, eval_tile: Option<u32>) -> ThisStart {
        ThisStart {
            clock: Instant::now(),
            earlier_seconds,
            training_seconds: 0.0,
            samples: 0,
            eval_tile,
            given_up: None,
            idle_after_eval: None,
            open_errors: 0,
            last_need: None,
            retries: 0,
        }
    }

    /// Seconds of all starts.
    pub(crate) fn wall_seconds(&self) -> f64 {
        self.earlier_seconds + self.clock.elapsed().as_secs_f64()
    }
}

/// What is told of memory that ran out.
pub(crate) fn out_of_memory(step: Step, phase: Phase, error: &TorchError) -> Event {
    let oom = match error {
        TorchError::Oom { oom, .. } => Some(oom),
        _ => None,
    };
    Event::OutOfMemory {
        step,
        phase,
        requested: oom.and_then(|oom| oom.requested),
        limit: oom.and_then(|oom| oom.limit),
        allocated: oom.and_then(|oom| oom.allocated),
        message: error.to_string(),
    }
}

/// Whether something that is done every so many steps is done after this one.
pub(crate) fn due(every: Option<u64>, step: u64) -> bool {
    every.is_some_and(|every| every > 0 && step.is_multiple_of(every))
}
