//! Where every event goes: into the run's file, where it has one, and to whoever listens.

use std::time::Instant;

use lowtide_core::{Event, Record};

use super::event_thinner::EventThinner;
use super::line_file::LineFile;
use crate::error::Result;

/// Whoever hears every event.
pub(crate) type Listener<'a> = Box<dyn FnMut(&Record) + 'a>;

/// The events of a run, or of an evaluation, from when this was made.
pub(crate) struct Journal<'a> {
    clock: Instant,
    /// `events.jsonl`; none where a run is only looked at.
    file: Option<LineFile>,
    thinner: EventThinner,
    listener: Listener<'a>,
}

impl<'a> Journal<'a> {
    pub(crate) fn new(file: Option<LineFile>, listener: Listener<'a>) -> Journal<'a> {
        Journal { clock: Instant::now(), file, thinner: EventThinner::default(), listener }
    }

    /// Writes an event down and tells of it; in a large file, one of a step may wait for the steps after it.
    pub(crate) fn tell(&mut self, event: Event) -> Result<()> {
        let record = Record::new(self.seconds(), event);
        if let Some(file) = &mut self.file {
            for record in self.thinner.next(&record, file.bytes()) {
                file.write(&record)?;
            }
        }
        (self.listener)(&record);
        Ok(())
    }

    /// Seconds since it was made.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock.elapsed().as_secs_f64()
    }
}
