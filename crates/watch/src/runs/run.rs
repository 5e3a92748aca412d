//! One run, followed as it grows.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use lowtide_settings::RunSettings;
use serde_json::Value;

use super::command::CommandHeader;
use super::digest::RunDigest;
use super::figures::{Figures, RunHeader};
use super::forecasts::ForecastRow;
use super::line_follower::{FileNews, LineFollower};
use super::lock_holder::lock_holder;
use super::marks::Marks;
use super::pace::TimeLeft;
use super::state::RunState;
use super::timeline::Timeline;
use crate::machine::{FreeMemory, History, Viewpoint};

pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const CONFIG: &str = "config.yaml";
const SUMMARY: &str = "summary.json";
/// A run that no process holds is taken for gone after this time and some steps without a word.
const PATIENCE: Duration = Duration::from_secs(10);

/// A run folder, and what is known of the run in it.
#[derive(Debug)]
pub struct Run {
    name: String,
    folder: PathBuf,
    lines: LineFollower,
    digest: RunDigest,
    state: RunState,
    process: Option<u32>,
    /// When the last event was written.
    written: Option<SystemTime>,
    /// Whether all that is written was read.
    is_read: bool,
    /// What was free when its process was last sampled.
    free: Option<FreeMemory>,
    summary: Option<Value>,
    summary_time: Option<SystemTime>,
    /// The end of the output of a command.
    output: Vec<String>,
}

impl Run {
    /// Whether this folder is, or is to be, that of one run.
    #[must_use]
    pub fn is_at(folder: &Path) -> bool {
        folder.join(EVENTS).is_file() || (folder.join(CONFIG).is_file() && !folder.join(".series").exists())
    }

    /// Follows the run in a folder. Nothing is read yet.
    #[must_use]
    pub fn new(name: String, folder: PathBuf) -> Run {
        Run {
            name,
            lines: LineFollower::new(folder.join(EVENTS)),
            folder,
            digest: RunDigest::default(),
            state: RunState::Waiting,
            process: None,
            written: None,
            is_read: false,
            free: None,
            summary: None,
            summary_time: None,
            output: Vec::new(),
        }
    }

    /// Reads what was written since the last look, a slice of it; whether there is more to read at once.
    ///
    /// # Errors
    ///
    /// What the system answers where the events may not be read.
    pub fn look(&mut self, now: SystemTime) -> io::Result<bool> {
        let digest = &mut self.digest;
        let mut is_new = false;
        let more = self.lines.read(|news| {
            is_new = true;
            match news {
                FileNews::Restart => digest.restart(),
                FileNews::Line(line) => digest.read(line),
            }
        })?;
        if is_new && digest.figures.steps.is_none() {
            digest.figures.steps = steps_in_settings(&self.folder);
        }
        self.is_read = !more;
        self.process = lock_holder(self.lines.path());
        self.written = fs::metadata(self.lines.path()).and_then(|metadata| metadata.modified()).ok();
        self.state = self.tell_state(now);
        self.read_summary();
        if let Some(command) = self.digest.command.as_ref().filter(|_| !more) {
            self.output = command.output(&self.folder);
        }
        Ok(more)
    }

    /// Takes a sample as its process sees it, on the clock of the run.
    pub(crate) fn add(&mut self, now: SystemTime, viewpoint: &Viewpoint<'_>) {
        // Events carry no time of day. The last one was written when the file was, which joins the two clocks.
        let (Some(written), true) = (self.written, self.is_read && self.state == RunState::Running) else { return };
        let since = now.duration_since(written).unwrap_or_default().as_secs_f64();
        let time = self.digest.figures.time + since;
        viewpoint.record(&mut self.digest.history, time);
        self.free = match self.header() {
            Some(header) if header.is_on_card() => FreeMemory::on_card(viewpoint),
            Some(header) => FreeMemory::on_host(viewpoint.host_free(), header.host_line, viewpoint.resident()),
            None => viewpoint.free(),
        };
    }

    /// The name by which it is told from others.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it said when it began.
    #[must_use]
    pub fn header(&self) -> Option<&RunHeader> {
        self.digest.header.as_ref()
    }

    /// The command, where it is one that is kept alive and no run of Lowtide's own.
    #[must_use]
    pub fn command(&self) -> Option<&CommandHeader> {
        self.digest.command.as_ref()
    }

    /// The last lines that a command has printed.
    #[must_use]
    pub fn output(&self) -> &[String] {
        &self.output
    }

    /// Whether it is under way.
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The process that trains, where the system tells.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Its figures at present.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.digest.figures
    }

    /// How long it has still to go, by the speed of its last steps; none where it is not under way, or where that cannot be
    /// known.
    #[must_use]
    pub fn time_left(&self) -> Option<TimeLeft> {
        let steps = self.figures().steps.filter(|_| self.state == RunState::Running)?;
        self.digest.pace.until(steps)
    }

    /// Memory that is still to be had, as it was sampled or noted last: of the card it is on, else of the host.
    #[must_use]
    pub fn free(&self) -> Option<&FreeMemory> {
        let sampled = self.free.as_ref().filter(|_| self.state == RunState::Running);
        sampled.or(self.digest.free.as_ref())
    }

    /// Memory and loss over time.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.digest.timeline
    }

    /// Memory of its process and of the machine over time: as the run noted it, and closer where somebody watched.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.digest.history
    }

    /// What happened besides steps.
    #[must_use]
    pub fn marks(&self) -> &Marks {
        &self.digest.marks
    }

    /// `summary.json`, where the run wrote one at its last end.
    #[must_use]
    pub fn summary(&self) -> Option<&Value> {
        self.summary.as_ref()
    }

    /// What was foreseen, against what was measured.
    #[must_use]
    pub fn forecasts(&self) -> Vec<ForecastRow> {
        self.digest.forecasts.rows(self.header(), self.figures(), self.summary())
    }

    /// Lines that could not be read: damaged, or of a newer version.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.digest.unread
    }

    /// Changes whenever points or marks that were there before are other ones.
    #[must_use]
    pub fn generation(&self) -> String {
        let digest = &self.digest;
        let host = digest.history.halvings();
        format!("{}.{}.{}.{host}", digest.readings, digest.timeline.halvings(), digest.marks.thinnings())
    }

    fn tell_state(&self, now: SystemTime) -> RunState {
        if let Some(how) = self.digest.ended {
            return RunState::Ended { how };
        }
        let Some(written) = self.written else { return RunState::Waiting };
        let quiet = now.duration_since(written).unwrap_or_default();
        let patience = PATIENCE + Duration::from_secs_f64((5.0 * self.digest.step_seconds).clamp(0.0, 3600.0));
        match self.process {
            None if quiet > patience => RunState::Gone { quiet: quiet.as_secs() },
            _ if self.digest.header.is_none() && self.digest.command.is_none() => RunState::Waiting,
            _ => RunState::Running,
        }
    }

    fn read_summary(&mut self) {
        let path = self.folder.join(SUMMARY);
        let written = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
        if written != self.summary_time {
            self.summary_time = written;
            self.summary = lowtide_settings::read(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
        }
    }
}

/// The steps that the settings of a run ask for.
fn steps_in_settings(folder: &Path) -> Option<u64> {
    let path = folder.join(CONFIG);
    let text = lowtide_settings::read(&path).ok()?;
    Some(RunSettings::load(Some((&path, &text)), &[]).ok()?.settings.train.steps)
}
