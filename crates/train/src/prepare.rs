//! What a run starts from: the state to train, the first measures, and whether the model can fit at all.

use std::num::NonZeroU32;
use std::path::Path;

use lowtide_core::{
    Action, Bytes, Event, Guard, Ladder, Limits, LineSpec, Measures, MicroBatch, Offer, Phase, Signal, Step,
};
use lowtide_settings::{MicroBatchChoice, Recompute, RunSettings, Spill};
use lowtide_torch::tch::{Kind, Tensor};
use lowtide_torch::{AdamW, AdamWRule, DeviceFacts, GradScaler, ScalerRule, TorchError};

use crate::checkpoint;
use crate::error::{Holder, Result, TrainError};
use crate::inject::{Injection, Injector};
use crate::memory::DeviceMemory;
use crate::metrics::Missing;
use crate::precision;
use crate::profile::Profile;
use crate::progress::{Figures, Progress};
use crate::run::out_of_memory;
use crate::run_folder::{FolderChoice, Start};
use crate::schedule::Schedule;
use crate::step::{RECOMPUTE_LEVELS, State, bytes_of};
use crate::trend::Trend;
use crate::workload::Workload;

/// The state before the first step; its moments are not allocated yet.
pub(crate) fn new_state<'a>(
    settings: &RunSettings,
    facts: &DeviceFacts,
    workload: &'a dyn Workload,
    injections: &[Injection],
) -> State<'a> {
    let rule = AdamWRule { beta1: settings.optimizer.beta1, beta2: settings.optimizer.beta2, ..AdamWRule::default() };
    let mut names = Vec::new();
    let mut groups = Vec::new();
    for (decay, parameters) in workload.parameter_groups() {
        let (group_names, tensors): (Vec<_>, Vec<_>) = parameters.into_iter().unzip();
        names.extend(group_names);
        groups.push((decay * settings.optimizer.weight_decay, tensors));
    }
    let parameters: Vec<Tensor> = groups.iter().flat_map(|(_, tensors)| tensors).map(Tensor::shallow_clone).collect();
    let moments = 2 * bytes_of(&parameters);
    let kind = precision::kind(settings.train.precision, facts);
    let narrow_kind = precision::narrower(kind, facts).filter(|_| settings.memory.narrow);
    State {
        workload,
        device: facts.device,
        parameters,
        parameter_names: names,
        buffers: workload.state().into_values().filter(|tensor| !tensor.requires_grad()).collect(),
        optimizer: AdamW::new(rule, groups),
        scaler: [Some(kind), narrow_kind].contains(&Some(Kind::Half)).then(|| GradScaler::new(ScalerRule::default())),
        kind,
        narrow_kind,
        spill_levels: spill_levels(settings, facts, moments),
        clip: settings.optimizer.clip,
        targets_per_sample: workload.targets_per_sample(),
        injector: Injector::new(facts.device, injections),
        begun: None,
    }
}

/// Levels of spilling. The CPU has no other memory to spill to; pinned memory does not pass through the host line's
/// allocator, so under a host line there is none either; and only recomputed segments have inputs to spill. The engine
/// rounds pinned memory up to a power of two; where that is more than half of the machine, nothing is spilled.
fn spill_levels(settings: &RunSettings, facts: &DeviceFacts, moments: u64) -> u32 {
    let memory = &settings.memory;
    let has_room = moments.next_power_of_two() <= facts.host_total.get() / 2;
    if !facts.device.is_cuda() || memory.spill == Spill::Off || memory.host_line != LineSpec::None || !has_room {
        return 0;
    }
    if settings.train.recompute == Recompute::Off { 1 } else { 2 }
}

/// Refuses a line that is smaller than what the model holds between two samples, then allocates the moments: on the host
/// where the device has no room for them and they may be there.
pub(crate) fn make_room(state: &mut State<'_>, memory: &DeviceMemory, choices: &mut Choices) -> Result<()> {
    let roof = memory.roof().limit();
    let lacks = |needed: Bytes| roof.is_some_and(|roof| needed > roof);
    let most = state.spill_levels;
    if most > 0 && lacks(resting_need(state, Moments::OnDevice)) {
        choices.first.spill = most;
    }
    memory.draw()?;
    let moments = if state.spills_moments(&choices.first) { Moments::OnHost } else { Moments::OnDevice };
    let needed = resting_need(state, moments);
    if lacks(needed) {
        return Err(TrainError::LineTooSmall { holder: Holder::Model, needed, line: roof.unwrap_or_default() });
    }
    // Only a line that was drawn is to blame; without one, others hold the device, and the engine's own words say it best.
    let refused = |error: TorchError| match memory.limit.limit() {
        Some(line) if error.is_oom() => TrainError::LineTooSmall { holder: Holder::Model, needed, line },
        _ => error.into(),
    };
    let placed = match moments {
        Moments::OnDevice => state.optimizer.allocate(),
        Moments::OnHost => state.optimizer.spill(),
    };
    match placed {
        Err(error) if error.is_oom() && moments == Moments::OnDevice && most > 0 => {
            choices.first.spill = most;
            state.optimizer.spill().map_err(refused)
        }
        placed => placed.map_err(refused),
    }
}

/// Where a run stands.
pub(crate) struct Standing {
    pub(crate) progress: Progress,
    /// Whether its guard has yet to choose the first micro-batch.
    pub(crate) is_fresh: bool,
    /// What happened while the checkpoint was loaded, to be told once the run is.
    pub(crate) load_events: Vec<Event>,
}

/// At its beginning, or where the folder's newest checkpoint is, which is then in `state`.
pub(crate) fn standing(
    folder: &FolderChoice,
    choices: &Choices,
    memory: &DeviceMemory,
    state: &mut State<'_>,
) -> Result<Standing> {
    let guard = choices.fresh_guard();
    let (line, host_line) = (memory.line, memory.host_line);
    if folder.start() == Start::New || folder.has_done_nothing() {
        let progress = fresh_progress(choices, memory);
        return Ok(Standing { progress, is_fresh: true, load_events: Vec::new() });
    }
    let checkpoints = folder.path().join("checkpoints");
    let newest = checkpoint::newest(&checkpoints).ok_or_else(|| TrainError::Checkpoint {
        path: checkpoints,
        problem: "there is no checkpoint to resume from".to_owned(),
    })?;
    let (mut saved, load_events) = load(&newest, memory, state, guard.clone())?;
    let is_fresh = !saved.is_sized || !choices.still_hold(&saved, memory);
    if (saved.line, saved.host_line) != (line, host_line) {
        // Peaks under another line say nothing about this one.
        saved.figures.forget_peaks();
        saved.found_tile = None;
    }
    let guard = if is_fresh { guard } else { saved.guard };
    let progress = Progress { guard, line, host_line, is_sized: !is_fresh, ..saved };
    Ok(Standing { progress, is_fresh, load_events })
}

/// Before the first step.
pub(crate) fn fresh_progress(choices: &Choices, memory: &DeviceMemory) -> Progress {
    Progress {
        step: Step::ZERO,
        next_sample: 0,
        guard: choices.fresh_guard(),
        line: memory.line,
        host_line: memory.host_line,
        figures: Figures::default(),
        trend: Trend::default(),
        evaluated: None,
        missing: Missing::new(),
        found_tile: None,
        is_sized: false,
    }
}

/// Loads a checkpoint, trying again as the guard says where memory runs out; with what happened meanwhile.
fn load(path: &Path, memory: &DeviceMemory, state: &mut State<'_>, mut guard: Guard) -> Result<(Progress, Vec<Event>)> {
    let step = checkpoint::step_of(path);
    let mut events = Vec::new();
    loop {
        let injector = std::mem::replace(&mut state.injector, Injector::new(state.device, &[]));
        let loaded = injector.during(step, Phase::Load, || checkpoint::load(path, state));
        state.injector = injector;
        let error = match loaded {
            Err(TrainError::Engine(error)) if error.is_oom() => error,
            loaded => {
                let mut progress = loaded?;
                let errors = events.iter().filter(|event| matches!(event, Event::OutOfMemory { .. })).count() as u64;
                progress.figures.oom_errors += errors;
                progress.figures.oom_recovered += errors;
                return Ok((progress, events));
            }
        };
        events.push(out_of_memory(step, Phase::Load, &error));
        match guard.on(Signal::Failed { step, phase: Phase::Load }) {
            Action::Stop(stop) => {
                return Err(TrainError::Line { stop: Box::new(stop), checkpoint: path.to_owned() });
            }
            Action::Retry { rung, measures, reason } => {
                events.push(memory.timed_clean()?.event(step));
                events.push(Event::RungTaken { step, rung, measures, reason });
            }
            _ => {}
        }
    }
}

/// What the settings, the workload and a schedule to follow leave to the guard.
pub(crate) struct Choices {
    ladder: Ladder,
    pub(crate) first: Measures,
}

impl Choices {
    pub(crate) fn of(
        settings: &RunSettings,
        state: &State<'_>,
        schedule: Option<&Schedule>,
        profile: Option<Profile>,
    ) -> Choices {
        let mut ladder = ladder(settings, state);
        let mut first = first_measures(settings, state, profile);
        if let Some(schedule) = schedule {
            // Whoever follows a schedule does not climb out of it.
            ladder.limits.climb_after = 0;
            first = schedule.at(Step(1), first);
        }
        Choices { ladder, first }
    }

    fn fresh_guard(&self) -> Guard {
        Guard::new(self.ladder, self.first, self.first.micro_batch)
    }

    /// Whether what the guard learned is still true: the same lines, the same choices, and it had not given up.
    fn still_hold(&self, saved: &Progress, memory: &DeviceMemory) -> bool {
        !saved.guard.has_stopped()
            && saved.guard.follows(&self.ladder, self.first.micro_batch)
            && (saved.line, saved.host_line) == (memory.line, memory.host_line)
    }
}

fn first_measures(settings: &RunSettings, state: &State<'_>, profile: Option<Profile>) -> Measures {
    let batch = MicroBatch::new(settings.train.batch).expect("the settings were checked: a batch has samples");
    let micro_batch = match settings.train.micro_batch {
        MicroBatchChoice::Auto => batch,
        MicroBatchChoice::Samples(size) => size,
    };
    let recompute = match settings.train.recompute {
        Recompute::On => true,
        Recompute::Auto => profile.is_some_and(Profile::recomputes),
        Recompute::Off => false,
    };
    let wanted_chunks = profile.map_or(NonZeroU32::MIN, Profile::loss_chunks);
    let loss_chunks = state.workload.most_loss_chunks().min(wanted_chunks);
    Measures {
        recompute: if recompute { RECOMPUTE_LEVELS } else { 0 },
        spill: if settings.memory.spill == Spill::On { state.spill_levels } else { 0 },
        loss_chunks,
        eval_loss_chunks: loss_chunks,
        ..Measures::new(micro_batch, micro_batch)
    }
}

fn ladder(settings: &RunSettings, state: &State<'_>) -> Ladder {
    let recompute_levels = if settings.train.recompute == Recompute::Off { 0 } else { RECOMPUTE_LEVELS };
    let offer = Offer {
        split: state.workload.splits(),
        loss_chunks: state.workload.most_loss_chunks(),
        recompute_levels,
        spill_levels: state.spill_levels,
        narrow: state.narrow_kind.is_some(),
    };
    let limits = Limits { recover: settings.memory.recover, ..Limits::default() };
    Ladder { offer, limits }
}

/// Where the optimizer's moments are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moments {
    OnDevice,
    OnHost,
}

/// What the device holds between two samples: parameters, a gradient each, buffers, and two moments each or what stands
/// in for them.
fn resting_need(state: &State<'_>, moments: Moments) -> Bytes {
    let (parameters, buffers) = (bytes_of(&state.parameters), bytes_of(&state.buffers));
    let moments = match moments {
        Moments::OnDevice => 2 * parameters,
        Moments::OnHost => state.optimizer.stage_bytes(),
    };
    Bytes(2 * parameters + buffers + moments)
}
