//! What a run starts from: whether the model can fit at all, and where the run stands.

use lowtide_core::{Action, Bytes, Event, Guard, Phase, Signal};
use lowtide_torch::TorchError;

use super::choices::Choices;
use crate::error::{Holder, Result, TrainError};
use crate::folder::checkpoint::{self, Loaded};
use crate::folder::{FolderChoice, Progress};
use crate::memory::{DeviceMemory, Injector, out_of_memory};
use crate::step::State;

/// Refuses a line that is smaller than what the model holds between two samples, then allocates the moments: on the host
/// where the device has no room for them and they may be there.
pub(super) fn make_room(state: &mut State<'_>, memory: &DeviceMemory, choices: &mut Choices) -> Result<()> {
    let roof = memory.roof().limit();
    let lacks = |needed: Bytes| roof.is_some_and(|roof| needed > roof);
    let most = state.model.spill_levels;
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
pub(super) struct Standing {
    pub(super) progress: Progress,
    /// Bytes that `events.jsonl` had then, where that was noted.
    pub(super) events_bytes: u64,
    /// What happened while that was found out, to be told once the run is.
    pub(super) events: Vec<Event>,
}

/// Where a run stands: at its beginning, or at a checkpoint of the folder, which is then in `state`.
pub(super) fn standing(
    folder: &FolderChoice,
    choices: &Choices,
    memory: &DeviceMemory,
    state: &mut State<'_>,
    injector: &Injector,
) -> Result<Standing> {
    let guard = choices.fresh_guard();
    if folder.is_fresh() {
        return Ok(Standing { progress: Progress::fresh(guard, memory), events_bytes: 0, events: Vec::new() });
    }
    let Standing { progress: mut saved, events_bytes, events } = load(folder, memory, state, injector, guard.clone())?;
    let is_fresh = !saved.is_sized || !choices.still_hold(&saved, memory);
    let (line, host_line) = (memory.line, memory.host_line);
    if (saved.line, saved.host_line) != (line, host_line) {
        // Peaks under another line say nothing about this one.
        saved.figures.memory.forget_peaks();
        saved.evaluation.found_tile = None;
    }
    let guard = if is_fresh { guard } else { saved.guard };
    let progress = Progress { guard, line, host_line, is_sized: !is_fresh, ..saved };
    Ok(Standing { progress, events_bytes, events })
}

/// Loads the checkpoint, trying again as the guard says where memory runs out; with what happened meanwhile.
fn load(
    folder: &FolderChoice,
    memory: &DeviceMemory,
    state: &mut State<'_>,
    injector: &Injector,
    mut guard: Guard,
) -> Result<Standing> {
    let (step, path) = folder.checkpoint()?;
    let mut events = Vec::new();
    loop {
        let error = match injector.during(step, Phase::Load, || checkpoint::load(&path, state)) {
            Err(TrainError::Engine(error)) if error.is_oom() => error,
            Err(TrainError::Damaged { path, problem, .. }) => {
                return Err(TrainError::Damaged { path, problem, fallback: folder.fallback(step) });
            }
            loaded => {
                let Loaded { mut progress, events_bytes, notes } = loaded?;
                let errors = events.iter().filter(|event| matches!(event, Event::OutOfMemory { .. })).count() as u64;
                progress.figures.memory.oom_errors += errors;
                progress.figures.memory.oom_recovered += errors;
                events.extend(notes.into_iter().map(|message| Event::Note { step, message }));
                return Ok(Standing { progress, events_bytes, events });
            }
        };
        events.push(out_of_memory(step, Phase::Load, &error, None));
        match guard.on(Signal::Failed { step, phase: Phase::Load }) {
            Action::Stop(stop) => {
                return Err(TrainError::Line { stop: Box::new(stop), checkpoint: path });
            }
            Action::Retry { rung, measures, reason } => {
                events.push(memory.release_cache(step)?);
                events.push(Event::RungTaken { step, rung, measures, reason });
            }
            _ => {}
        }
    }
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
    let parameters = state.model.parameter_bytes();
    let moments = match moments {
        Moments::OnDevice => parameters.saturating_mul(2),
        Moments::OnHost => Bytes(state.optimizer.stage_bytes()),
    };
    state.model.weight_bytes().saturating_add(parameters).saturating_add(moments)
}
