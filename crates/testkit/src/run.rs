//! A run that is written by a test.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use lowtide_core::{Event, Record};

/// The `events.jsonl` of a run, as an engine would write it.
pub struct FakeRun(File);

impl FakeRun {
    /// Begins the file in a folder, or goes on with it.
    pub fn open(folder: &Path) -> FakeRun {
        fs::create_dir_all(folder).unwrap();
        FakeRun(OpenOptions::new().create(true).append(true).open(folder.join("events.jsonl")).unwrap())
    }

    /// Holds the run as an engine does that trains it.
    pub fn lock(&self) {
        self.0.lock().unwrap();
    }

    /// Writes what happened so many seconds after the start.
    pub fn event(&mut self, time: f64, event: Event) {
        writeln!(self.0, "{}", serde_json::to_string(&Record::new(time, event)).unwrap()).unwrap();
    }

    /// The same, at a time of day that the test says.
    pub fn event_at(&mut self, now: SystemTime, time: f64, event: Event) {
        self.event(time, event);
        self.0.set_modified(now).unwrap();
    }
}
