//! What a run starts from: the state to train, the first measures, and whether the model can fit at all.

use std::num::NonZeroU32;

use lowtide_core::{Bytes, Guard, Ladder, Line, Measures, MicroBatch, Offer, Step};
use lowtide_settings::{MicroBatchChoice, Recompute, RunSettings};
use lowtide_torch::tch::{Kind, Tensor};
use lowtide_torch::{AdamW, AdamWRule, DeviceFacts, GradScaler, ScalerRule};

use crate::checkpoint;
use crate::error::{Holder, Result, TrainError};
use crate::inject::{Injection, Injector};
use crate::memory::DeviceMemory;
use crate::precision;
use crate::profile::Profile;
use crate::progress::{Figures, Progress};
use crate::run_folder::{FolderChoice, Start};
use crate::schedule::Schedule;
use crate::step::{RECOMPUTE_LEVELS, State};
use crate::workload::Workload;

/// Pieces of the loss on a device that has little memory: an eighth of the logits is held at once.
const FIRST_CHUNKS: NonZeroU32 = NonZeroU32::new(8).expect("it is not 0");

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
        injector: Injector::new(facts.device, injections),
        begun: None,
    }
}

/// Refuses a line that is smaller than what the model holds between two samples, then allocates the moments.
pub(crate) fn make_room(state: &mut State<'_>, memory: &DeviceMemory) -> Result<()> {
    let needed = resting_need(state);
    let too_small = |line: Bytes| TrainError::LineTooSmall { holder: Holder::Model, needed, line };
    let limit = memory.limit.limit();
    if let Some(line) = limit.filter(|line| needed > *line) {
        return Err(too_small(line));
    }
    memory.draw()?;
    state.optimizer.allocate().map_err(|error| match limit {
        Some(line) if error.is_oom() => too_small(line),
        _ => error.into(),
    })
}

/// Where the run stands: at its beginning, or where the folder's newest checkpoint is, which is then in `state`.
pub(crate) fn progress(
    folder: &FolderChoice,
    settings: &RunSettings,
    memory: &DeviceMemory,
    state: &mut State<'_>,
    schedule: Option<&Schedule>,
    profile: Option<Profile>,
) -> Result<Progress> {
    let choices = Choices::of(settings, state.workload, schedule, profile);
    let fresh = choices.fresh_guard();
    let (line, host_line) = (memory.line, memory.host_line);
    if folder.start() == Start::New || folder.has_done_nothing() {
        let figures = Figures::default();
        return Ok(Progress { step: Step::ZERO, next_sample: 0, guard: fresh, line, host_line, figures });
    }
    let checkpoints = folder.path().join("checkpoints");
    let newest = checkpoint::newest(&checkpoints).ok_or_else(|| TrainError::Checkpoint {
        path: checkpoints,
        problem: "there is no checkpoint to resume from".to_owned(),
    })?;
    let saved = checkpoint::load(&newest, state)?;
    let guard = if choices.still_hold(&saved, memory) { saved.guard } else { fresh };
    Ok(Progress { guard, line, host_line, ..saved })
}

/// What the settings, the workload and a schedule to follow leave to the guard.
struct Choices {
    ladder: Ladder,
    first: Measures,
}

impl Choices {
    fn of(
        settings: &RunSettings,
        workload: &dyn Workload,
        schedule: Option<&Schedule>,
        profile: Option<Profile>,
    ) -> Choices {
        let mut ladder = ladder(settings, workload);
        let mut first = first_measures(settings, workload, profile);
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

fn first_measures(settings: &RunSettings, workload: &dyn Workload, profile: Option<Profile>) -> Measures {
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
    let chunks_loss = profile.is_some_and(Profile::chunks_loss);
    let loss_chunks = if chunks_loss { workload.most_loss_chunks().min(FIRST_CHUNKS) } else { NonZeroU32::MIN };
    Measures {
        recompute: if recompute { RECOMPUTE_LEVELS } else { 0 },
        loss_chunks,
        eval_loss_chunks: loss_chunks,
        ..Measures::new(micro_batch, micro_batch)
    }
}

fn ladder(settings: &RunSettings, workload: &dyn Workload) -> Ladder {
    let recompute_levels = if settings.train.recompute == Recompute::Off { 0 } else { RECOMPUTE_LEVELS };
    let loss_chunks = workload.most_loss_chunks();
    Ladder {
        offer: Offer { split: workload.splits(), loss_chunks, recompute_levels, ..Offer::default() },
        ..Ladder::default()
    }
}

/// What training holds between two samples: parameters, a gradient each, two moments each, and buffers.
fn resting_need(state: &State<'_>) -> Bytes {
    let size = |tensor: &Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
    let parameters: u64 = state.parameters.iter().map(size).sum();
    let buffers: u64 = state.buffers.iter().map(size).sum();
    Bytes(4 * parameters + buffers)
}

/// The line, or the whole device where there is none.
pub(crate) fn roof(memory: &DeviceMemory, facts: &DeviceFacts) -> Line {
    if memory.limit.limit().is_some() {
        return memory.limit;
    }
    Line::at(facts.total.saturating_sub(facts.context)).unwrap_or(Line::NONE)
}
