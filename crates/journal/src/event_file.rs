//! The file of events: every one written when it happens, with its time.
//!
//! Thinning keeps `events.jsonl` from growing without end: in a large file, step events stand for several steps.
//!
//! Up to [`FULL`] bytes every step has its event. From there on steps are gathered, first for a second, then for twice as
//! long with every [`STRIDE`] bytes more, so that a file has little over 150 MB after years. An event of several steps is
//! that of the last one with the samples, tokens and seconds of all and the highest peaks. All other events are
//! written, each behind the steps before it.

use std::time::Instant;

use lowtide_core::{Event, Record};

use crate::error::Result;
use crate::line_file::LineFile;

/// Bytes up to which nothing is gathered.
const FULL: u64 = 64 << 20;
/// Bytes after which steps are gathered for twice as long.
const STRIDE: u64 = 8 << 20;

/// The events of a run, or of an evaluation, from when this was made.
#[derive(Debug)]
pub struct EventFile {
    clock: Instant,
    /// `events.jsonl`; none where a run is only looked at.
    file: Option<LineFile>,
    thinner: EventThinner,
}

impl EventFile {
    /// Events from now on; without a file they are only given their time.
    #[must_use]
    pub fn new(file: Option<LineFile>) -> EventFile {
        EventFile { clock: Instant::now(), file, thinner: EventThinner::default() }
    }

    /// Writes an event down, and gives it back with its time; in a large file, one of a step may wait for the steps after it.
    pub fn write(&mut self, event: Event) -> Result<Record> {
        self.write_of(None, event)
    }

    /// The same, of one of several ranks.
    pub fn write_of(&mut self, rank: Option<u32>, event: Event) -> Result<Record> {
        let record = Record::new(self.seconds(), event).on_rank(rank);
        if let Some(file) = &mut self.file {
            for record in self.thinner.next(&record, file.bytes()) {
                file.write(&record)?;
            }
        }
        Ok(record)
    }

    /// The file, where it has one.
    #[must_use]
    pub fn lines(&self) -> Option<&LineFile> {
        self.file.as_ref()
    }

    /// Writes what comes into another file, which has all that was written.
    pub fn go_on_in(&mut self, file: LineFile) {
        self.file = Some(file);
    }

    /// Seconds since it was made.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.clock.elapsed().as_secs_f64()
    }
}

/// What is held back of the last steps.
#[derive(Debug, Default)]
struct EventThinner {
    waiting: Option<Record>,
    /// When the first of them happened.
    since: f64,
}

impl EventThinner {
    /// What is to be written when this happens to a run whose file has `size` bytes.
    fn next(&mut self, record: &Record, size: u64) -> impl Iterator<Item = Record> {
        let is_step = matches!(record.event, Event::StepDone { .. });
        let mut written = [None, None];
        match self.waiting.take() {
            Some(waiting) if is_step => self.waiting = Some(together(waiting, record)),
            waiting => {
                self.since = record.time;
                if is_step {
                    self.waiting = Some(record.clone());
                } else {
                    written = [waiting, Some(record.clone())];
                }
            }
        }
        if self.waiting.as_ref().is_some_and(|waiting| waiting.time - self.since >= pause(size)) {
            written[0] = self.waiting.take();
        }
        written.into_iter().flatten()
    }
}

/// Seconds that steps are gathered for.
fn pause(size: u64) -> f64 {
    match size.checked_sub(FULL) {
        None => 0.0,
        Some(over) => 2f64.powi(i32::try_from(over / STRIDE).unwrap_or(i32::MAX)),
    }
}

/// Two step events as one.
fn together(before: Record, after: &Record) -> Record {
    let mut record = after.clone();
    if let (
        Event::StepDone { samples: more, tokens: more_tokens, seconds: longer, peak: high, reserved: held, .. },
        Event::StepDone { samples, tokens, seconds, peak, reserved, .. },
    ) = (before.event, &mut record.event)
    {
        *samples += more;
        *tokens = tokens.zip(more_tokens).map(|(tokens, more)| tokens + more);
        *seconds += longer;
        *peak = high.max(*peak);
        *reserved = held.max(*reserved);
    }
    record
}

#[cfg(test)]
mod tests {
    use lowtide_core::{Bytes, MicroBatch, Step};

    use super::*;

    fn step(number: u64, peak: u64) -> Event {
        Event::StepDone {
            step: Step(number),
            loss: number as f64,
            learning_rate: 0.1,
            samples: 8,
            tokens: Some(80),
            seconds: 0.25,
            allocated: Bytes(1),
            peak: Bytes(peak),
            reserved: Bytes(peak + 1),
            micro_batch: MicroBatch::ONE,
        }
    }

    fn saved(number: u64) -> Event {
        Event::Saved { step: Step(number), path: String::new(), bytes: Bytes(1), seconds: 0.1 }
    }

    fn written(thinner: &mut EventThinner, time: f64, event: Event, size: u64) -> Vec<Event> {
        thinner.next(&Record::new(time, event), size).map(|record| record.event).collect()
    }

    #[test]
    fn every_step_is_written_at_once_while_the_file_is_small() {
        let mut thinner = EventThinner::default();
        for number in 1..5 {
            let event = step(number, 7);
            assert_eq!(written(&mut thinner, 0.001 * number as f64, event.clone(), FULL - 1), [event]);
        }
    }

    #[test]
    fn steps_of_a_second_are_gathered_and_nothing_is_left_out() {
        let mut thinner = EventThinner::default();
        assert_eq!(written(&mut thinner, 10.0, step(1, 5), FULL), []);
        assert_eq!(written(&mut thinner, 10.4, step(2, 9), FULL), []);
        let all = written(&mut thinner, 11.0, step(3, 2), FULL);
        let Event::StepDone { step: Step(3), loss, samples, tokens, seconds, peak, reserved, .. } = all[0] else {
            panic!("{all:?}")
        };
        assert_eq!((loss, samples, tokens, seconds), (3.0, 24, Some(240), 0.75));
        assert_eq!((peak, reserved), (Bytes(9), Bytes(10)));

        assert_eq!(written(&mut thinner, 11.1, step(4, 5), FULL), []);
        assert_eq!(written(&mut thinner, 11.2, saved(4), FULL), [step(4, 5), saved(4)], "in their order");
        assert_eq!(written(&mut thinner, 11.3, saved(4), FULL), [saved(4)]);
    }

    #[test]
    fn years_of_steps_stay_bounded() {
        let line = serde_json::to_string(&Record::new(1e9, step(1_000_000, 1 << 40))).unwrap().len() as u64 + 1;
        let (mut size, mut thinner) = (FULL, EventThinner::default());
        let (mut time, mut steps) = (0.0, 0u64);
        // Four years, in strides that grow as the pauses do.
        while time < 4.0 * 365.0 * 86_400.0 {
            time += pause(size) / 3.0;
            steps += 1;
            size += line * thinner.next(&Record::new(time, step(steps, 1)), size).count() as u64;
        }
        assert!(size < 200 << 20, "{} MiB", size >> 20);
        assert!(size > FULL + STRIDE);
    }
}
