//! What is left to the guard: the measures a run starts with, and the ladder below them.

use std::num::NonZeroU32;

use lowtide_core::{Guard, Ladder, Limits, Measures, MicroBatch, Offer, Step};
use lowtide_settings::{MicroBatchChoice, Recompute, RunSettings, Spill};

use crate::folder::{Progress, Schedule};
use crate::memory::{DeviceMemory, Profile};
use crate::step::{Model, RECOMPUTE_LEVELS};

/// What the settings, the workload and a schedule to follow leave to the guard.
pub(super) struct Choices {
    ladder: Ladder,
    pub(super) first: Measures,
}

impl Choices {
    pub(super) fn of(
        settings: &RunSettings,
        model: &Model<'_>,
        schedule: Option<&Schedule>,
        profile: Option<Profile>,
    ) -> Choices {
        let mut ladder = ladder(settings, model);
        let mut first = first_measures(settings, model, profile);
        if let Some(schedule) = schedule {
            // Whoever follows a schedule does not climb out of it.
            ladder.limits.climb_after = 0;
            first = schedule.at(Step(1), first);
        }
        Choices { ladder, first }
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

fn first_measures(settings: &RunSettings, model: &Model<'_>, profile: Option<Profile>) -> Measures {
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
    let loss_chunks = model.workload.most_loss_chunks().min(wanted_chunks);
    Measures {
        recompute: if recompute { RECOMPUTE_LEVELS } else { 0 },
        spill: if settings.memory.spill == Spill::On { model.spill_levels } else { 0 },
        loss_chunks,
        eval_loss_chunks: loss_chunks,
        ..Measures::new(micro_batch, micro_batch)
    }
}

fn ladder(settings: &RunSettings, model: &Model<'_>) -> Ladder {
    let recompute_levels = if settings.train.recompute == Recompute::Off { 0 } else { RECOMPUTE_LEVELS };
    let offer = Offer {
        split: model.workload.splits(),
        loss_chunks: model.workload.most_loss_chunks(),
        recompute_levels,
        spill_levels: model.spill_levels,
        narrow: model.may_narrow(),
    };
    let limits = Limits { recover: settings.memory.recover, ..Limits::default() };
    Ladder { offer, limits }
}
