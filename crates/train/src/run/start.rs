//! What a run starts from: whether the model can fit at all, and where the run stands.

use lowtide_core::{Action, Bytes, Event, Guard, Measures, Phase, Signal, Step};
use lowtide_torch::{GradientBuckets, TorchError};

use super::choices::Choices;
use crate::error::{Holder, Result, TrainError};
use crate::folder::checkpoint;
use crate::folder::{FolderChoice, Progress};
use crate::memory::{DeviceMemory, Injector, out_of_memory};
use crate::ranks::{Agreed, OwnFailure, Team, Way, spread_state};
use crate::step::State;

/// Refuses a line that is smaller than what the model holds between two samples, then allocates the moments. Where the device of some
/// rank has no room for them, they are divided among ranks; where that is not enough, they are on the host; both if they may be.
pub(super) fn make_room(
    state: &mut State<'_>,
    memory: &DeviceMemory,
    choices: &mut Choices,
    team: &Team,
) -> Result<()> {
    let roof = memory.roof().limit();
    let is_short = |state: &State<'_>| roof.is_some_and(|roof| resting_need(state, Moments::OnDevice, team) > roof);
    choices.first.shard |= choices.may_shard() && is_short(state);
    choices.agree(team)?;
    shard_if_chosen(state, choices, team);
    if state.model.spill_levels > 0 && is_short(state) {
        choices.first.spill = state.model.spill_levels;
    }
    choices.agree(team)?;
    state.model.spill_levels = choices.spill_levels();
    team.settle(DOING, allocate(state, memory, choices, team))?;
    choices.agree(team)?;
    shard_if_chosen(state, choices, team);
    team.settle(DOING, state.optimizer.cut().map_err(TrainError::from))?;
    if state.spills_moments(&choices.first) {
        team.settle(DOING, state.optimizer.spill().map_err(TrainError::from))?;
    }
    Ok(())
}

fn shard_if_chosen(state: &mut State<'_>, choices: &Choices, team: &Team) {
    if let (true, Some(ranks)) = (choices.first.shard, team.ranks()) {
        state.shard(ranks);
    }
}

/// What ranks do meanwhile.
const DOING: &str = "making room for the model";

/// Draws the lines and allocates what is held between two samples.
fn allocate(state: &mut State<'_>, memory: &DeviceMemory, choices: &mut Choices, team: &Team) -> Result<()> {
    memory.draw()?;
    let roof = memory.roof().limit();
    let most = state.model.spill_levels;
    let moments = if state.spills_moments(&choices.first) { Moments::OnHost } else { Moments::OnDevice };
    let needed = resting_need(state, moments, team);
    if roof.is_some_and(|roof| needed > roof) {
        return Err(TrainError::LineTooSmall { holder: Holder::Model, needed, line: roof.unwrap_or_default() });
    }
    // Only a line that was drawn is to blame; without one, others hold the device, and the engine's own words say it best.
    let refused = |error: TorchError| match memory.limit.limit() {
        Some(line) if error.is_oom() => TrainError::LineTooSmall { holder: Holder::Model, needed, line },
        _ => error.into(),
    };
    state.join(team).map_err(refused)?;
    let place = |state: &mut State<'_>| match moments {
        Moments::OnDevice => state.optimizer.allocate(),
        Moments::OnHost => state.optimizer.spill(),
    };
    let placed = match place(state) {
        Err(error) if error.is_oom() && choices.may_shard() && state.shards.is_none() => {
            choices.first.shard = true;
            shard_if_chosen(state, choices, team);
            place(state)
        }
        placed => placed,
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

/// Where a run stands: at its beginning, or at a checkpoint of the folder, which is then in the `state` of all ranks. Only the
/// first of them has a folder.
pub(super) fn standing(
    folder: Option<&FolderChoice>,
    choices: &Choices,
    memory: &DeviceMemory,
    state: &mut State<'_>,
    injector: &Injector,
    team: &Team,
) -> Result<Standing> {
    let guard = choices.fresh_guard();
    let is_fresh = team.of_first(LOADING, Some(folder.is_some_and(FolderChoice::is_fresh)))?;
    if is_fresh {
        spread_state(state, team)?;
        return Ok(Standing { progress: Progress::fresh(guard, memory), events_bytes: 0, events: Vec::new() });
    }
    let Standing { progress: mut saved, events_bytes, events } =
        load(folder, memory, state, injector, guard.clone(), team)?;
    spread_state(state, team)?;
    let is_fresh = !saved.is_sized || !choices.still_hold(&saved, memory);
    let (line, host_line) = (memory.line, memory.host_line);
    if (saved.line, saved.host_line) != (line, host_line) {
        // Peaks under another line say nothing about this one.
        saved.figures.memory.forget_peaks();
        saved.evaluation.found_tile = None;
    }
    let mut guard = if is_fresh { guard } else { saved.guard };
    if choices.first.shard {
        guard.follow(Measures { shard: true, ..guard.measures() });
    }
    let progress = Progress { guard, line, host_line, is_sized: !is_fresh, ..saved };
    // Lines may be others on other ranks: what they mean for the guard is the first one's to say.
    let progress = team.of_first(LOADING, Some(progress))?;
    Ok(Standing { progress, events_bytes, events })
}

/// What ranks do meanwhile.
const LOADING: &str = "loading a checkpoint";

/// Loads the checkpoint, trying again as the guard says where memory runs out; with what happened meanwhile.
fn load(
    folder: Option<&FolderChoice>,
    memory: &DeviceMemory,
    state: &mut State<'_>,
    injector: &Injector,
    mut guard: Guard,
    team: &Team,
) -> Result<Standing> {
    let found = team.settle(LOADING, folder.map(FolderChoice::checkpoint).transpose())?;
    let step = team.of_first(LOADING, Some(found.as_ref().map_or(Step::ZERO, |(step, _)| *step)))?;
    let path = found.map(|(_, path)| path).unwrap_or_default();
    let mut events = Vec::new();
    loop {
        let read = || folder.map(|_| checkpoint::load(&path, state, team)).transpose();
        let own = injector.during(step, Phase::Load, read);
        let own = state.attend(Way::FromFirst, team, own);
        let own = own.map_err(|error| match (error, folder) {
            (TrainError::Damaged { path, problem, .. }, Some(folder)) => {
                TrainError::Damaged { path, problem, fallback: folder.fallback(step) }
            }
            (error, _) => error,
        });
        let own = own.map_err(|error| OwnFailure { peaks: None, ..OwnFailure::new(Phase::Load, error, memory) });
        let failures = match team.agree(LOADING, own, &[])?.0 {
            Agreed::Done(loaded) => {
                let (progress, events_bytes, notes) = loaded
                    .map_or((None, 0, Vec::new()), |loaded| (Some(loaded.progress), loaded.events_bytes, loaded.notes));
                let mut progress: Progress = team.of_first(LOADING, progress)?;
                let errors = events.iter().filter(|event| matches!(event, Event::OutOfMemory { .. })).count() as u64;
                progress.figures.memory.oom_errors += errors;
                progress.figures.memory.oom_recovered += errors;
                events.extend(notes.into_iter().map(|message| Event::Note { step, message }));
                return Ok(Standing { progress, events_bytes, events });
            }
            Agreed::Failed(failures) => failures,
        };
        events.extend(failures.iter().map(|failure| out_of_memory(step, Phase::Load, &failure.error, None)));
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

/// What the device holds between two samples: parameters, a gradient each, buffers, two moments each or what stands
/// in for them, and what gradients are added up through where there are several ranks.
fn resting_need(state: &State<'_>, moments: Moments, team: &Team) -> Bytes {
    let parameters = state.model.parameter_bytes();
    let moments = match moments {
        Moments::OnDevice => Bytes(state.optimizer.moment_bytes()),
        Moments::OnHost => Bytes(state.optimizer.stage_bytes()),
    };
    let buckets = if team.is_alone() { 0 } else { GradientBuckets::bytes(&state.model.parameters) };
    state.model.weight_bytes().saturating_add(parameters).saturating_add(moments).saturating_add(Bytes(buckets))
}
