//! Memory that runs out: it is told of, the guard is asked, and what it says is done.

use lowtide_core::{Action, Bytes, Event, Guard, Phase, Signal, Step, Stop, Usage};
use lowtide_settings::Clean;
use lowtide_torch::TorchError;
use lowtide_torch::cuda::AllocatorReading;
use serde::{Deserialize, Serialize};

use super::block_cache::{Moment, is_due};
use super::device_memory::DeviceMemory;
use super::injection::Injector;
use crate::error::Result;
use crate::journal::Journal;
use crate::ranks::{RankFailure, Team};

/// What training and evaluation share: the device's memory, the guard that keeps them under its line, and the journal.
pub(crate) struct Recovery<'a> {
    /// Those who train together: what one meets, all answer.
    pub(crate) team: &'a Team,
    pub(crate) memory: DeviceMemory,
    pub(crate) guard: Guard,
    pub(crate) journal: Journal<'a>,
    /// Fails what it was told to fail.
    pub(crate) injector: Injector,
    /// When cached blocks are released although nothing failed.
    clean: Clean,
    pub(crate) figures: MemoryFigures,
    /// Errors since work last went well.
    open_errors: u64,
    /// What was in use and what was asked for when memory last ran out, where the error said so.
    last_need: Option<Bytes>,
    /// Times the allocator had to empty its cache.
    retries: u64,
}

/// What a run needed of memory, and how often it ran out, over all its starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryFigures {
    /// Out-of-memory errors met.
    pub(crate) oom_errors: u64,
    /// Those after which the same work was done.
    pub(crate) oom_recovered: u64,
    /// The most memory taken from the device.
    pub(crate) reserved_peak: Bytes,
    /// The most memory held by tensors.
    pub(crate) allocated_peak: Bytes,
}

impl MemoryFigures {
    /// Takes in the peaks of a reading.
    pub(crate) fn note(&mut self, reading: &AllocatorReading) {
        self.reserved_peak = self.reserved_peak.max(reading.reserved_peak);
        self.allocated_peak = self.allocated_peak.max(reading.allocated_peak);
    }

    pub(crate) fn forget_peaks(&mut self) {
        (self.reserved_peak, self.allocated_peak) = (Bytes::ZERO, Bytes::ZERO);
    }
}

impl<'a> Recovery<'a> {
    /// Counts on from the figures of earlier starts.
    pub(crate) fn new(
        team: &'a Team,
        memory: DeviceMemory,
        guard: Guard,
        journal: Journal<'a>,
        injector: Injector,
        clean: Clean,
        figures: MemoryFigures,
    ) -> Recovery<'a> {
        Recovery { team, memory, guard, journal, injector, clean, figures, open_errors: 0, last_need: None, retries: 0 }
    }

    pub(crate) fn tell(&mut self, event: Event) -> Result<()> {
        self.journal.tell(event)
    }

    /// Tells of memory that ran out on some ranks and does what the guard says; `Some` where there is to be no other try.
    pub(crate) fn failed(&mut self, step: Step, failures: &[RankFailure]) -> Result<Option<Stop>> {
        self.note_failures(step, failures)?;
        let phase = failures.first().map_or(Phase::Forward, |failure| failure.phase);
        match self.guard.on(Signal::Failed { step, phase }) {
            Action::Stop(stop) | Action::GiveUp(stop) => {
                self.forget_open_errors();
                Ok(Some(stop))
            }
            answer => {
                self.carry_out(step, answer)?;
                // What the next try needs is measured by itself.
                self.memory.reset_peaks()?;
                Ok(None)
            }
        }
    }

    /// Counts out-of-memory errors and tells of them.
    pub(crate) fn note_failures(&mut self, step: Step, failures: &[RankFailure]) -> Result<()> {
        let reading = self.memory.reading()?;
        self.figures.note(&reading);
        for RankFailure { rank, phase, error, peaks, .. } in failures {
            self.figures.oom_errors += 1;
            self.open_errors += 1;
            if let TorchError::Oom { oom, .. } = error {
                self.last_need = oom.requested.zip(oom.allocated).map(|(asked, held)| held.saturating_add(asked));
            }
            let rank = (!self.team.is_alone()).then_some(*rank);
            self.journal.tell_of(rank, out_of_memory(step, *phase, error, *peaks))?;
        }
        Ok(())
    }

    /// The work that had failed was done.
    pub(crate) fn recovered(&mut self) {
        self.figures.oom_recovered += std::mem::take(&mut self.open_errors);
    }

    /// The work that had failed was given up.
    pub(crate) fn forget_open_errors(&mut self) {
        self.open_errors = 0;
    }

    /// Hears of a committed step, and does what the guard and the settings say about it. `tightest` is the memory of the rank
    /// with the least room, where there are several.
    pub(crate) fn committed(
        &mut self,
        step: Step,
        resting: Bytes,
        reading: &AllocatorReading,
        tightest: Option<Usage>,
    ) -> Result<()> {
        // A warning of one rank alone would make its guard another than those of the others.
        if reading.retries > self.retries && self.team.is_alone() {
            self.retries = reading.retries;
            let warning = self.guard.on(Signal::RetriesRose);
            self.carry_out(step, warning)?;
        }
        let own = Usage { resting, peak: reading.allocated_peak, line: self.memory.roof() };
        let usage = tightest.unwrap_or(own);
        let answer = self.guard.on(Signal::Committed { step, usage });
        self.carry_out(step, answer)?;
        self.clean_if_due(step, Moment::AfterStep { peak: reading.allocated_peak, reserved: reading.reserved })
    }

    /// Hears of an evaluation that was done.
    pub(crate) fn evaluated(&mut self, step: Step) -> Result<()> {
        let answer = self.guard.on(Signal::Evaluated);
        self.carry_out(step, answer)
    }

    /// What made the allocator empty its cache so far is no warning.
    pub(crate) fn forget_retries(&mut self) -> Result<()> {
        self.retries = self.memory.reading()?.retries;
        Ok(())
    }

    pub(crate) fn clean(&mut self, step: Step) -> Result<()> {
        let cleaned = self.memory.release_cache(step)?;
        self.tell(cleaned)
    }

    /// Cleans where the settings ask for it at this moment.
    pub(crate) fn clean_if_due(&mut self, step: Step, moment: Moment) -> Result<()> {
        if is_due(self.clean, moment, step, self.memory.cached_room()) { self.clean(step) } else { Ok(()) }
    }

    /// The line under which the last failed try would have come one request further: the least that can be enough.
    pub(crate) fn least_line(&self) -> Option<Bytes> {
        let beside = self.memory.line.limit()?.saturating_sub(self.memory.limit.limit()?);
        Some(self.last_need?.saturating_add(beside))
    }

    fn carry_out(&mut self, step: Step, action: Action) -> Result<()> {
        match action {
            Action::Continue | Action::GiveUp(_) | Action::Stop(_) => Ok(()),
            Action::Clean { .. } => self.clean(step),
            Action::Retry { rung, measures, reason } => {
                self.clean(step)?;
                self.tell(Event::RungTaken { step, rung, measures, reason })
            }
            Action::Climb { measures, reason } => self.tell(Event::Climbed { step, measures, reason }),
        }
    }
}

/// What is told of memory that ran out; `peaks` are the most that was in use and held in the try that failed, where they were
/// counted from its start.
pub(crate) fn out_of_memory(step: Step, phase: Phase, error: &TorchError, peaks: Option<(Bytes, Bytes)>) -> Event {
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
        peak: peaks.map(|(allocated, _)| allocated),
        reserved: peaks.map(|(_, reserved)| reserved),
        message: error.to_string(),
    }
}
