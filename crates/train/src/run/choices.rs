//! What is left to the guard: the measures a run starts with, and the ladder below them.

use std::num::NonZeroU32;

use lowtide_core::{Guard, Ladder, Limits, Measures, MicroBatch, Offer, Step};
use lowtide_settings::{MicroBatchChoice, Recompute, RunSettings, Shard, Spill};

use crate::error::Result;
use crate::folder::{Progress, Schedule};
use crate::memory::{DeviceMemory, Profile};
use crate::ranks::Team;
use crate::step::{Model, RECOMPUTE_LEVELS};

/// What the settings, the workload and a schedule to follow leave to the guard.
pub(super) struct Choices {
    ladder: Ladder,
    pub(super) first: Measures,
}

impl Choices {
    /// `most` is what a rank computes of a step at most.
    pub(super) fn of(
        settings: &RunSettings,
        model: &Model<'_>,
        team: &Team,
        most: MicroBatch,
        schedule: Option<&Schedule>,
        profile: Option<Profile>,
    ) -> Choices {
        let mut ladder = ladder(settings, model, team);
        let mut first = first_measures(settings, model, team, most, profile);
        if let Some(schedule) = schedule {
            // Whoever follows a schedule does not climb out of it.
            ladder.limits.climb_after = 0;
            first = schedule.at(Step(1), first);
        }
        Choices { ladder, first }
    }

    /// Makes them the same on all ranks: those of the rank that has the least.
    pub(super) fn agree(&mut self, team: &Team) -> Result<()> {
        let all = team.gather("agreeing on how to start", Some(&(self.ladder, self.first)))?;
        for (ladder, first) in all.into_iter().flatten() {
            let offer = &mut self.ladder.offer;
            offer.spill_levels = offer.spill_levels.min(ladder.offer.spill_levels);
            offer.shard &= ladder.offer.shard;
            offer.narrow &= ladder.offer.narrow;
            self.first.loss_chunks = self.first.loss_chunks.max(first.loss_chunks);
            self.first.eval_loss_chunks = self.first.eval_loss_chunks.max(first.eval_loss_chunks);
            self.first.recompute = self.first.recompute.max(first.recompute);
            self.first.shard |= first.shard;
            self.first.spill = self.first.spill.max(first.spill);
        }
        Ok(())
    }

    /// Levels of spilling that every rank has.
    pub(super) fn spill_levels(&self) -> u32 {
        self.ladder.offer.spill_levels
    }

    /// Whether ranks may divide the optimizer's state.
    pub(super) fn may_shard(&self) -> bool {
        self.ladder.offer.shard
    }

    pub(super) fn fresh_guard(&self) -> Guard {
        Guard::new(self.ladder, self.first, self.first.micro_batch)
    }

    /// Whether what the guard learned is still true: the same lines, the same choices, and it had not given up.
    pub(super) fn still_hold(&self, saved: &Progress, memory: &DeviceMemory) -> bool {
        !saved.guard.has_stopped()
            && saved.guard.follows(&self.ladder, self.first.micro_batch)
            && (saved.line, saved.host_line) == (memory.line, memory.host_line)
    }
}

fn first_measures(
    settings: &RunSettings,
    model: &Model<'_>,
    team: &Team,
    most: MicroBatch,
    profile: Option<Profile>,
) -> Measures {
    let micro_batch = match settings.train.micro_batch {
        MicroBatchChoice::Auto => most,
        MicroBatchChoice::Samples(size) => size.min(most),
    };
    let recompute = match settings.train.recompute {
        Recompute::On => true,
        Recompute::Auto => profile.is_some_and(Profile::recomputes),
        Recompute::Off => false,
    };
    let wanted_chunks = profile.map_or(NonZeroU32::MIN, Profile::loss_chunks);
    let loss_chunks = model.workload.most_loss_chunks().min(wanted_chunks);
    Measures {
        recompute: if recompute { RECOMPUTE_LEVELS } else { 0 },
        shard: settings.ranks.shard == Shard::On && !team.is_alone(),
        spill: if settings.memory.spill == Spill::On { model.spill_levels } else { 0 },
        loss_chunks,
        eval_loss_chunks: loss_chunks,
        ..Measures::new(micro_batch, micro_batch)
    }
}

fn ladder(settings: &RunSettings, model: &Model<'_>, team: &Team) -> Ladder {
    let recompute_levels = if settings.train.recompute == Recompute::Off { 0 } else { RECOMPUTE_LEVELS };
    let offer = Offer {
        split: model.workload.splits(),
        loss_chunks: model.workload.most_loss_chunks(),
        recompute_levels,
        shard: settings.ranks.shard != Shard::Off && !team.is_alone(),
        spill_levels: model.spill_levels,
        narrow: model.may_narrow(),
    };
    let limits = Limits { recover: settings.memory.recover, ..Limits::default() };
    Ladder { offer, limits }
}
