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

/// What training and evaluation share: the device's memory, the guard that keeps them under its line, and the journal.
pub(crate) struct Recovery<'a> {
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
        memory: DeviceMemory,
        guard: Guard,
        journal: Journal<'a>,
        injector: Injector,
        clean: Clean,
        figures: MemoryFigures,
    ) -> Recovery<'a> {
        Recovery { memory, guard, journal, injector, clean, figures, open_errors: 0, last_need: None, retries: 0 }
    }

    pub(crate) fn tell(&mut self, event: Event) -> Result<()> {
        self.journal.tell(event)
    }

    /// Tells of a failure and does what the guard says; `Some` where there is to be no other try.
    pub(crate) fn failed(&mut self, step: Step, phase: Phase, error: TorchError) -> Result<Option<Stop>> {
        if !error.is_oom() {
            return Err(error.into());
        }
        self.note_failure(step, phase, &error)?;
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

    /// Counts an out-of-memory error and tells of it.
    pub(crate) fn note_failure(&mut self, step: Step, phase: Phase, error: &TorchError) -> Result<()> {
        self.figures.oom_errors += 1;
        let reading = self.memory.reading()?;
        self.figures.note(&reading);
        self.open_errors += 1;
        if let TorchError::Oom { oom, .. } = error {
            self.last_need = oom.requested.zip(oom.allocated).map(|(asked, held)| held.saturating_add(asked));
        }
        self.tell(out_of_memory(step, phase, error, Some(&reading)))
    }

    /// The work that had failed was done.
    pub(crate) fn recovered(&mut self) {
        self.figures.oom_recovered += std::mem::take(&mut self.open_errors);
    }

    /// The work that had failed was given up.
    pub(crate) fn forget_open_errors(&mut self) {
        self.open_errors = 0;
    }

    /// Hears of a committed step, and does what the guard and the settings say about it.
    pub(crate) fn committed(&mut self, step: Step, resting: Bytes, reading: &AllocatorReading) -> Result<()> {
        if reading.retries > self.retries {
            self.retries = reading.retries;
            let warning = self.guard.on(Signal::RetriesRose);
            self.carry_out(step, warning)?;
        }
        let usage = Usage { resting, peak: reading.allocated_peak, line: self.memory.roof() };
        let answer = self.guard.on(Signal::Committed { step, usage });
        self.carry_out(step, answer)?;
        self.clean_if_due(step, Moment::AfterStep { allocated: reading.allocated, reserved: reading.reserved })
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

/// What is told of memory that ran out; `reading` is of the try that failed, where its peaks were counted from its start.
pub(crate) fn out_of_memory(step: Step, phase: Phase, error: &TorchError, reading: Option<&AllocatorReading>) -> Event {
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
        peak: reading.map(|reading| reading.allocated_peak),
        reserved: reading.map(|reading| reading.reserved_peak),
        message: error.to_string(),
    }
}
