//! The loop: steps, evaluations and checkpoints until the run ends, with the guard deciding what happens when memory runs
//! out.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lowtide_core::{
    Action, Bytes, Ending, Event, Guard, Ladder, Line, Measures, MicroBatch, Offer, Phase, Record, SCHEMA, Signal,
    Step, Stop, Usage, pieces,
};
use lowtide_settings::{MicroBatchChoice, Recompute, RunSettings};
use lowtide_torch::cuda::AllocatorSettings;
use lowtide_torch::tch::{Device, Kind, Tensor, no_grad_guard};
use lowtide_torch::{AdamW, AdamWRule, DeviceFacts, GradScaler, ScalerRule, TorchError, attempt};

use crate::checkpoint::{self, Progress};
use crate::error::{Result, TrainError};
use crate::learning_rate::learning_rate;
use crate::memory::DeviceMemory;
use crate::precision;
use crate::run_folder::{FolderChoice, RunFolder, Start};
use crate::step::{Failed, Made, RECOMPUTE_LEVELS, State};
use crate::summary::{Summary, weights_sha256};
use crate::workload::Workload;

/// Steps whose losses the summary's final loss is the mean of.
const RECENT: usize = 20;

/// What a run is told.
pub struct Plan<'a> {
    /// The settings, checked.
    pub settings: &'a RunSettings,
    /// The device it runs on.
    pub facts: &'a DeviceFacts,
    /// Where the CUDA allocator's settings come from.
    pub allocator: &'a AllocatorSettings,
    /// Where it is written down.
    pub folder: FolderChoice,
    /// Whether it starts anew.
    pub start: Start,
    /// Set from outside to end the run after the step under way.
    pub interrupt: &'a AtomicBool,
}

/// A run that is ready to train: the model fits, the folder is open, the first checkpoint is written.
pub struct Run<'a> {
    settings: &'a RunSettings,
    facts: &'a DeviceFacts,
    interrupt: &'a AtomicBool,
    memory: DeviceMemory,
    state: State<'a>,
    guard: Guard,
    folder: RunFolder,
    progress: Progress,
    outlook: Outlook<'a>,
    totals: Totals,
    clock: Instant,
}

/// Who is told of every event.
type Outlook<'a> = Box<dyn FnMut(&Record) + 'a>;

/// Figures of this start of the run, for the summary.
#[derive(Default)]
struct Totals {
    reserved_peak: Bytes,
    allocated_peak: Bytes,
    eval_loss: Option<f64>,
    training_seconds: f64,
    samples: u64,
    retries: u64,
    resting: Bytes,
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
}

impl<'a> Run<'a> {
    /// Checks that the model can fit, then opens the folder. Nothing is written before all checks are passed.
    pub fn prepare(plan: Plan<'a>, workload: &'a dyn Workload, outlook: impl FnMut(&Record) + 'a) -> Result<Run<'a>> {
        let settings = plan.settings;
        let memory = DeviceMemory::resolve(&settings.memory, plan.facts, plan.allocator)?;
        let mut state = new_state(settings, plan.facts, workload);
        fits_at_rest(&state, memory.limit)?;
        memory.draw()?;
        state.optimizer.allocate().map_err(|error| too_small(error, &state, memory.limit))?;

        let measures = first_measures(settings);
        let mut progress =
            Progress { step: Step::ZERO, samples: 0, measures, recent_losses: Vec::new(), oom_errors: 0, seconds: 0.0 };
        if plan.start == Start::Resume {
            let checkpoints = plan.folder.path().join("checkpoints");
            let newest = checkpoint::newest(&checkpoints).ok_or_else(|| TrainError::Checkpoint {
                path: checkpoints,
                problem: "there is no checkpoint to resume from".to_owned(),
            })?;
            progress = checkpoint::load(&newest, &mut state)?;
        }
        let guard = Guard::new(ladder(settings, workload), progress.measures, first_measures(settings).micro_batch);
        let folder = plan.folder.open(settings)?;
        let mut run = Run {
            settings,
            facts: plan.facts,
            interrupt: plan.interrupt,
            memory,
            state,
            guard,
            folder,
            progress,
            outlook: Box::new(outlook),
            totals: Totals::default(),
            clock: Instant::now(),
        };
        run.announce(plan.start)?;
        run.save()?;
        Ok(run)
    }

    /// Trains to the end.
    pub fn train(mut self) -> Result<Outcome> {
        if self.settings.eval.at_start && self.progress.step.get() == 0 {
            if let Some(stop) = self.evaluate()? {
                return self.finish(Ending::Line { stop });
            }
        }
        let ending = loop {
            if self.interrupt.load(Ordering::Relaxed) {
                break Ending::Interrupted;
            }
            if self.progress.step.get() >= self.settings.train.steps {
                break Ending::Finished;
            }
            if let Some(stop) = self.step()? {
                break Ending::Line { stop };
            }
            let step = self.progress.step.get();
            if due(self.settings.eval.every, step)
                && let Some(stop) = self.evaluate()?
            {
                break Ending::Line { stop };
            }
            if due(self.settings.save.every, step) {
                self.save()?;
            }
        };
        self.finish(ending)
    }

    /// Makes the next step, trying again as the guard says.
    fn step(&mut self) -> Result<Option<Stop>> {
        let step = self.progress.step.next();
        let batch = self.settings.train.batch;
        let rate = learning_rate(&self.settings.optimizer, step.get(), self.settings.train.steps);
        self.memory.reset_peaks()?;
        self.totals.resting = self.memory.reading()?.allocated;
        loop {
            let begun = Instant::now();
            match self.state.step(self.progress.samples, batch, &self.progress.measures, rate) {
                Ok(made) => {
                    self.commit(step, made, rate, begun.elapsed().as_secs_f64())?;
                    return Ok(None);
                }
                Err(Failed { phase, error }) => {
                    if let Some(stop) = self.failed(step, phase, error)? {
                        return Ok(Some(stop));
                    }
                }
            }
        }
    }

    fn commit(&mut self, step: Step, made: Made, rate: f64, seconds: f64) -> Result<()> {
        let batch = self.settings.train.batch;
        self.progress.step = step;
        self.progress.samples += u64::from(batch);
        self.progress.seconds += seconds;
        self.totals.training_seconds += seconds;
        self.totals.samples += u64::from(batch);
        if self.progress.recent_losses.len() == RECENT {
            self.progress.recent_losses.remove(0);
        }
        self.progress.recent_losses.push(made.loss);

        let reading = self.memory.reading()?;
        self.totals.reserved_peak = self.totals.reserved_peak.max(reading.reserved_peak);
        self.totals.allocated_peak = self.totals.allocated_peak.max(reading.allocated_peak);
        self.folder.schedule(step, batch, self.progress.measures.micro_batch)?;
        if made.skipped {
            let scale = self.state.scaler.as_ref().map_or(1.0, GradScaler::scale);
            self.tell(Event::Skipped { step, scale })?;
        }
        let targets = u64::from(batch) * self.state.targets_per_sample;
        self.tell(Event::StepDone {
            step,
            loss: made.loss,
            learning_rate: rate,
            samples: u64::from(batch),
            tokens: Some(targets),
            seconds,
            allocated: reading.allocated,
            peak: reading.allocated_peak,
            reserved: reading.reserved,
            micro_batch: self.progress.measures.micro_batch,
        })?;
        if reading.retries > self.totals.retries {
            self.totals.retries = reading.retries;
            let warning = self.guard.on(Signal::RetriesRose);
            self.carry_out(step, warning)?;
        }
        let usage = Usage { resting: self.totals.resting, peak: reading.allocated_peak, line: self.roof()? };
        let answer = self.guard.on(Signal::Committed { step, usage });
        self.carry_out(step, answer)
    }

    /// The line, or the whole device where there is none.
    fn roof(&self) -> Result<Line> {
        if self.memory.limit.limit().is_some() {
            return Ok(self.memory.limit);
        }
        Ok(Line::at(self.facts.total.saturating_sub(self.facts.context)).unwrap_or(Line::NONE))
    }

    /// Tells of a failure and does what the guard says; `Some` where it says stop.
    fn failed(&mut self, step: Step, phase: Phase, error: TorchError) -> Result<Option<Stop>> {
        let TorchError::Oom { oom, message } = error else {
            return Err(error.into());
        };
        self.progress.oom_errors += 1;
        let (requested, limit, allocated) = (oom.requested, oom.limit, oom.allocated);
        self.tell(Event::OutOfMemory { step, phase, requested, limit, allocated, message })?;
        match self.guard.on(Signal::Failed { step, phase }) {
            Action::Stop(stop) => Ok(Some(stop)),
            answer => {
                self.carry_out(step, answer)?;
                Ok(None)
            }
        }
    }

    fn carry_out(&mut self, step: Step, action: Action) -> Result<()> {
        match action {
            Action::Continue | Action::Stop(_) => Ok(()),
            Action::Clean { .. } => self.clean(step),
            Action::Retry { rung, measures, reason } => {
                self.clean(step)?;
                self.progress.measures = measures;
                self.tell(Event::RungTaken { step, rung, measures, reason })
            }
            Action::Climb { measures, reason } => {
                self.progress.measures = measures;
                self.tell(Event::Climbed { step, measures, reason })
            }
        }
    }

    fn clean(&mut self, step: Step) -> Result<()> {
        let begun = Instant::now();
        let freed = self.memory.clean()?;
        self.tell(Event::Cleaned { step, freed, seconds: begun.elapsed().as_secs_f64() })
    }

    /// Evaluates, trying again as the guard says. Training's state and random numbers stay as they are.
    fn evaluate(&mut self) -> Result<Option<Stop>> {
        let step = self.progress.step;
        let begun = Instant::now();
        loop {
            match self.eval_loss() {
                Ok(loss) => {
                    self.totals.eval_loss = Some(loss);
                    let answer = self.guard.on(Signal::Evaluated);
                    self.carry_out(step, answer)?;
                    let batches = self.settings.eval.batches;
                    self.tell(Event::Evaluated { step, loss, batches, seconds: begun.elapsed().as_secs_f64() })?;
                    return Ok(None);
                }
                Err(error) => {
                    if let Some(stop) = self.failed(step, Phase::Eval, error)? {
                        return Ok(Some(stop));
                    }
                }
            }
        }
    }

    fn eval_loss(&self) -> std::result::Result<f64, TorchError> {
        let batch = self.settings.train.batch;
        let mut sum = 0.0;
        let mut targets = 0;
        for index in 0..self.settings.eval.batches {
            sum += attempt(|| {
                let _no_grad = no_grad_guard();
                let _evaluating = self.state.workload.mode().evaluate();
                let samples = self.state.workload.eval_batch(index * u64::from(batch), batch);
                let mut start = 0;
                let mut sum = 0.0;
                for size in pieces(batch, self.progress.measures.eval_micro_batch) {
                    sum += self.state.loss(&samples.piece(start, size), 0).double_value(&[]);
                    start += size;
                }
                targets += samples.target_count();
                sum
            })?;
        }
        Ok(sum / targets as f64)
    }

    fn save(&mut self) -> Result<PathBuf> {
        let begun = Instant::now();
        let folder = self.folder.checkpoints();
        let (path, bytes) = loop {
            match checkpoint::save(&folder, &self.state, &self.progress) {
                Err(TrainError::Engine(error)) if error.is_oom() => {
                    let step = self.progress.step;
                    if let Some(stop) = self.failed(step, Phase::Save, error)? {
                        let checkpoint = checkpoint::newest(&folder).unwrap_or_default();
                        return Err(TrainError::Line { stop: Box::new(stop), checkpoint });
                    }
                }
                result => break result?,
            }
        };
        checkpoint::prune(&folder, self.settings.save.keep)?;
        let name = path.strip_prefix(self.folder.path()).unwrap_or(&path).display().to_string();
        let step = self.progress.step;
        self.tell(Event::Saved { step, path: name, bytes, seconds: begun.elapsed().as_secs_f64() })?;
        Ok(path)
    }

    fn finish(mut self, ending: Ending) -> Result<Outcome> {
        let stopped = match &ending {
            Ending::Finished => "finished",
            Ending::Interrupted => "interrupted",
            Ending::Line { .. } => "line",
            Ending::Error { .. } => "error",
        };
        if stopped == "finished"
            && self.settings.eval.every.is_some()
            && !due(self.settings.eval.every, self.progress.step.get())
        {
            // A failed last evaluation costs nothing: its figure is missing, and the reason is in the events.
            self.evaluate()?;
        }
        let checkpoint = self.save()?;
        let step = self.progress.step;
        let stop = match &ending {
            Ending::Line { stop } => Some(stop.clone()),
            _ => None,
        };
        self.tell(Event::Stopped { step, ending })?;
        let summary = self.summary(stopped);
        self.folder.summary(&summary)?;
        Ok(Outcome { summary, folder: self.folder.path().to_owned(), checkpoint, stop })
    }

    fn summary(&self, stopped: &'static str) -> Summary {
        let progress = &self.progress;
        let seconds = self.totals.training_seconds.max(f64::MIN_POSITIVE);
        let per_second = if self.totals.samples == 0 { 0.0 } else { self.totals.samples as f64 / seconds };
        let recent = &progress.recent_losses;
        Summary {
            schema: SCHEMA,
            workload: self.state.workload.name().to_owned(),
            device: device_name(self.facts.device),
            precision: precision::name(self.state.kind).to_owned(),
            parameters: self.state.parameter_count(),
            steps: progress.step.get(),
            effective_batch: self.settings.train.batch,
            micro_batch_final: progress.measures.micro_batch.get(),
            line_bytes: self.memory.line.limit().map(Bytes::get),
            peak_reserved_bytes: self.totals.reserved_peak.get(),
            peak_allocated_bytes: self.totals.allocated_peak.get(),
            oom_errors: progress.oom_errors,
            oom_recovered: progress.oom_errors - u64::from(stopped == "line"),
            skipped_steps: self.state.scaler.as_ref().map_or(0, GradScaler::skipped),
            samples_seen: progress.samples,
            samples_lost: progress.step.get() * u64::from(self.settings.train.batch) - progress.samples,
            final_loss: (!recent.is_empty()).then(|| recent.iter().sum::<f64>() / recent.len() as f64),
            eval_loss: self.totals.eval_loss,
            loss_floor: self.state.workload.loss_floor(),
            samples_per_second: per_second,
            targets_per_second: per_second * self.state.targets_per_sample as f64,
            weights_sha256: weights_sha256(&self.state.workload.state()),
            wall_seconds: self.clock.elapsed().as_secs_f64(),
            stopped,
        }
    }

    fn announce(&mut self, start: Start) -> Result<()> {
        self.tell(Event::RunStarted {
            workload: self.state.workload.name().to_owned(),
            device: device_name(self.facts.device),
            seed: self.settings.seed,
            batch: self.settings.train.batch,
            micro_batch: self.progress.measures.micro_batch,
            line: self.memory.line,
            host_line: self.memory.host_line,
            parameters: self.state.parameter_count(),
            resumed_at: (start == Start::Resume).then_some(self.progress.step),
        })
    }

    fn tell(&mut self, event: Event) -> Result<()> {
        let record = Record::new(self.clock.elapsed().as_secs_f64(), event);
        self.folder.event(&record)?;
        (self.outlook)(&record);
        Ok(())
    }
}

fn due(every: Option<u64>, step: u64) -> bool {
    every.is_some_and(|every| every > 0 && step.is_multiple_of(every))
}

fn new_state<'a>(settings: &RunSettings, facts: &DeviceFacts, workload: &'a dyn Workload) -> State<'a> {
    let rule = AdamWRule { beta1: settings.optimizer.beta1, beta2: settings.optimizer.beta2, ..AdamWRule::default() };
    let mut names = Vec::new();
    let mut groups = Vec::new();
    for (decay, parameters) in workload.parameter_groups() {
        let (group_names, tensors): (Vec<_>, Vec<_>) = parameters.into_iter().unzip();
        names.extend(group_names);
        groups.push((decay * settings.optimizer.weight_decay, tensors));
    }
    let parameters = groups.iter().flat_map(|(_, tensors)| tensors).map(Tensor::shallow_clone).collect();
    let kind = precision::kind(settings.train.precision, facts);
    State {
        workload,
        device: facts.device,
        parameters,
        parameter_names: names,
        buffers: workload.state().into_values().filter(|tensor| !tensor.requires_grad()).collect(),
        optimizer: AdamW::new(rule, groups),
        scaler: (kind == Kind::Half).then(|| GradScaler::new(ScalerRule::default())),
        kind,
        clip: settings.optimizer.clip,
        targets_per_sample: workload.targets_per_sample(),
    }
}

fn first_measures(settings: &RunSettings) -> Measures {
    let batch = MicroBatch::new(settings.train.batch).expect("the settings were checked: a batch has samples");
    let micro_batch = match settings.train.micro_batch {
        MicroBatchChoice::Auto => batch,
        MicroBatchChoice::Samples(size) => size,
    };
    let recompute = if settings.train.recompute == Recompute::On { RECOMPUTE_LEVELS } else { 0 };
    Measures { recompute, ..Measures::new(micro_batch, micro_batch) }
}

fn ladder(settings: &RunSettings, workload: &dyn Workload) -> Ladder {
    let recompute_levels = if settings.train.recompute == Recompute::Off { 0 } else { RECOMPUTE_LEVELS };
    Ladder { offer: Offer { split: workload.splits(), recompute_levels, ..Offer::default() }, ..Ladder::default() }
}

/// What training holds between two samples: parameters, a gradient each, two moments each, and buffers.
fn resting_need(state: &State<'_>) -> Bytes {
    let size = |tensor: &Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
    let parameters: u64 = state.parameters.iter().map(size).sum();
    let buffers: u64 = state.buffers.iter().map(size).sum();
    Bytes(4 * parameters + buffers)
}

fn fits_at_rest(state: &State<'_>, limit: Line) -> Result<()> {
    let needed = resting_need(state);
    match limit.limit() {
        Some(line) if needed > line => Err(TrainError::LineTooSmall { needed, line }),
        _ => Ok(()),
    }
}

fn too_small(error: TorchError, state: &State<'_>, limit: Line) -> TrainError {
    match limit.limit() {
        Some(line) if error.is_oom() => TrainError::LineTooSmall { needed: resting_need(state), line },
        _ => error.into(),
    }
}

fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}
