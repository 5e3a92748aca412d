//! A process that is watched for itself, whatever it runs.

use std::time::SystemTime;

use lowtide_core::{Bytes, span};
use lowtide_sensors::{Cause, Detail, Process, Reading, Sample};
use serde::Serialize;

use super::free_memory::FreeMemory;
use super::history::History;
use super::viewpoint::{CHILDREN, ON_CARDS, RESIDENT, Viewpoint};

/// A process that is watched for itself, and its memory since then.
#[derive(Debug)]
pub struct ProcessMonitor {
    pid: u32,
    seen: Option<Process>,
    began: SystemTime,
    seconds: f64,
    has_ended: bool,
    history: History,
    free: Option<FreeMemory>,
}

/// A watched process, as pages list it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessRow {
    /// Its number.
    pub pid: u32,
    /// The name of its program and its number.
    pub name: String,
    /// Whether it is there.
    pub is_running: bool,
    /// The same in words.
    pub state_text: String,
    /// Seconds that it was watched.
    pub time: f64,
    /// Memory in RAM, those below it included; the last that was seen.
    pub resident: Option<Bytes>,
    /// The most it had in RAM, without those below it, since it started.
    pub peak: Option<Bytes>,
    /// What it has on all cards together; the last that was seen.
    pub on_cards_now: Option<Bytes>,
    /// The most that it had on all cards together, since it is watched.
    pub on_cards: Option<Bytes>,
    /// What is still to be had: on the card that it is on, else on the host.
    pub free: Option<FreeMemory>,
}

impl ProcessMonitor {
    /// Watches a process from `now` on.
    #[must_use]
    pub fn new(pid: u32, now: SystemTime) -> ProcessMonitor {
        let history = History::default();
        ProcessMonitor { pid, seen: None, began: now, seconds: 0.0, has_ended: false, history, free: None }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Its memory, and that of the machine, over the seconds since it is watched.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The name of its program and its number.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.seen {
            Some(process) => format!("{} ({})", process.name, self.pid),
            None => format!("process {}", self.pid),
        }
    }

    /// The state in one sentence.
    #[must_use]
    pub fn state_text(&self) -> String {
        match (self.has_ended, &self.seen) {
            (false, _) => "The process is running.".to_owned(),
            (true, None) => "The process has ended.".to_owned(),
            (true, Some(process)) => format!(
                "The process has ended, after {} of watching; its peak was {} in RAM.",
                span(self.seconds as u64),
                Bytes(process.peak_bytes)
            ),
        }
    }

    /// The process as pages list it.
    #[must_use]
    pub fn row(&self) -> ProcessRow {
        let last = |name| self.history.curve(name).last().map(|(_, bytes)| bytes);
        let below = last(CHILDREN).unwrap_or_default();
        ProcessRow {
            pid: self.pid,
            name: self.name(),
            is_running: !self.has_ended,
            state_text: self.state_text(),
            time: self.seconds,
            resident: last(RESIDENT).map(|resident| resident.saturating_add(below)),
            peak: self.seen.as_ref().map(|process| Bytes(process.peak_bytes)),
            on_cards_now: last(ON_CARDS),
            on_cards: self.history.highest(ON_CARDS),
            free: self.free.clone().filter(|_| !self.has_ended),
        }
    }

    /// Takes a sample; none counts after its end.
    pub(crate) fn add(&mut self, now: SystemTime, sample: &Sample, detail: Option<&Detail>) {
        if self.has_ended {
            return;
        }
        match &sample.process {
            Reading::Known(process) => self.seen = Some(process.clone()),
            Reading::Missing(missing) if missing.cause == Cause::Ended => {
                self.has_ended = true;
                return;
            }
            Reading::Missing(_) => {}
        }
        self.seconds = now.duration_since(self.began).unwrap_or_default().as_secs_f64();
        let viewpoint = Viewpoint::first(sample, detail);
        viewpoint.record(&mut self.history, self.seconds);
        self.free = viewpoint.free();
    }
}
