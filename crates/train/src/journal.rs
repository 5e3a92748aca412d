//! Where every event goes: into the run's file, where it has one, and to whoever listens.

use lowtide_core::{Event, Record};
use lowtide_journal::{EventFile, LineFile};

use crate::error::Result;

/// The events of a run, or of an evaluation, from when this was made.
pub(crate) struct Journal<'a> {
    events: EventFile,
    /// Whoever hears every event.
    listener: Box<dyn FnMut(&Record) + 'a>,
}

impl<'a> Journal<'a> {
    pub(crate) fn new(file: Option<LineFile>, listener: impl FnMut(&Record) + 'a) -> Journal<'a> {
        Journal { events: EventFile::new(file), listener: Box::new(listener) }
    }

    /// Writes an event down and tells of it.
    pub(crate) fn tell(&mut self, event: Event) -> Result<()> {
        self.tell_of(None, event)
    }

    /// The same, of one of several ranks.
    pub(crate) fn tell_of(&mut self, rank: Option<u32>, event: Event) -> Result<()> {
        let record = self.events.write_of(rank, event)?;
        (self.listener)(&record);
        Ok(())
    }

    /// The file, where it has one.
    pub(crate) fn lines(&self) -> Option<&LineFile> {
        self.events.lines()
    }

    /// Writes what comes into another file, which has all that was written.
    pub(crate) fn go_on_in(&mut self, file: LineFile) {
        self.events.go_on_in(file);
    }

    /// Seconds since it was made.
    pub(crate) fn seconds(&self) -> f64 {
        self.events.seconds()
    }
}
