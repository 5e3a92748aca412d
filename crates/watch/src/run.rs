//! One run, followed as it grows.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, mem};

use lowtide_core::{Bytes, Ending, Event, Line, Metrics, Record, SCHEMA, Step};
use lowtide_sensors::{Detail, Sample};
use lowtide_settings::RunSettings;
use serde::Serialize;
use serde_json::Value;

use crate::alive;
use crate::follow::{Follow, Seen};
use crate::history::History;
use crate::live::{DEVICE_USED, HOST_USED, RESIDENT, record};
use crate::marks::{Kind, Mark, Marks};
use crate::plan::{Plan, PlanRow};
use crate::story::sentence;
use crate::timeline::{Point, Timeline};

pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const CONFIG: &str = "config.yaml";
const SUMMARY: &str = "summary.json";
/// The longest text that is kept of what an engine said.
const MESSAGE: usize = 800;
/// A run that no process holds is taken for gone after this time and some steps without a word.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a run is under way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Nothing has been written yet.
    Waiting,
    /// A process trains, or did a moment ago.
    Running,
    /// It said that it ended.
    Ended {
        /// `finished`, `interrupted`, `line` or `error`.
        how: &'static str,
    },
    /// It never said that it ended, but no process holds its folder.
    Gone {
        /// Seconds since it last wrote.
        quiet: u64,
    },
}

/// What a run said of itself when it began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Head {
    /// The workload.
    pub workload: String,
    /// The device.
    pub device: String,
    /// Samples in a step.
    pub batch: u32,
    /// Trained parameters.
    pub parameters: u64,
    /// The line.
    pub line: Option<Bytes>,
    /// The line on host memory.
    pub host_line: Option<Bytes>,
}

/// The figures of a run at present.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The last committed step.
    pub step: u64,
    /// The steps it is to have, where its settings tell.
    pub steps: Option<u64>,
    /// Seconds of training, over all starts.
    pub time: f64,
    /// The loss of the last step.
    pub loss: Option<f64>,
    /// The loss of the last evaluation.
    pub eval_loss: Option<f64>,
    /// Other figures of the last evaluation.
    pub metrics: Metrics,
    /// Bytes in use after the last step.
    pub allocated: Bytes,
    /// The most bytes in use during the last step.
    pub peak: Bytes,
    /// The most bytes held from the device during the last step.
    pub reserved: Bytes,
    /// The most bytes ever in use.
    pub highest_peak: Bytes,
    /// The most bytes ever held from the device.
    pub highest_reserved: Bytes,
    /// Samples computed at once.
    pub micro_batch: u32,
    /// Samples in a second, over the last steps.
    pub samples_per_second: f64,
    /// Tokens in a second, over the last steps, for workloads that have tokens.
    pub tokens_per_second: Option<f64>,
    /// Out-of-memory errors.
    pub out_of_memory: u64,
    /// Out-of-memory errors after which the same work was done.
    pub recovered: u64,
    /// Answers of the guard.
    pub rungs: u64,
    /// Times that cached blocks were released.
    pub cleanings: u64,
    /// Bytes that came back by that.
    pub freed: Bytes,
    /// Checkpoints written.
    pub saved: u64,
    /// Times the allocator had to empty its cache, since the last start; runs of older versions do not tell.
    pub retries: Option<u64>,
    /// The most memory of the host that the process was seen to take.
    pub highest_resident: Option<Bytes>,
    /// Memory of the host, or what its control group may take of it.
    pub host_total: Option<Bytes>,
}

/// A run folder, and what is known of the run in it.
#[derive(Debug)]
pub struct Run {
    name: String,
    folder: PathBuf,
    follow: Follow,
    story: Story,
    state: State,
    process: Option<u32>,
    /// When the last event was written.
    written: Option<SystemTime>,
    /// Whether all that is written was read.
    is_read: bool,
    summary: Option<Value>,
    summary_time: Option<SystemTime>,
}

/// What the events of a run came to.
#[derive(Debug, Default)]
struct Story {
    head: Option<Head>,
    figures: Figures,
    timeline: Timeline,
    history: History,
    marks: Marks,
    plan: Plan,
    ended: Option<&'static str>,
    /// Seconds of the starts before the present one.
    before: f64,
    unanswered: u64,
    step_seconds: f64,
    unread: u64,
    /// Grows when the file was read anew.
    readings: u32,
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
            follow: Follow::new(folder.join(EVENTS)),
            folder,
            story: Story::default(),
            state: State::Waiting,
            process: None,
            written: None,
            is_read: false,
            summary: None,
            summary_time: None,
        }
    }

    /// Reads what was written since the last look, a slice of it; whether there is more to read at once.
    ///
    /// # Errors
    ///
    /// What the system answers where the events may not be read.
    pub fn look(&mut self, now: SystemTime) -> io::Result<bool> {
        let story = &mut self.story;
        let mut is_new = false;
        let more = self.follow.read(|seen| {
            is_new = true;
            match seen {
                Seen::Anew => *story = Story { readings: story.readings + 1, ..Story::default() },
                Seen::Line(line) => story.read(line),
            }
        })?;
        if is_new && story.figures.steps.is_none() {
            story.figures.steps = planned_steps(&self.folder);
        }
        self.is_read = !more;
        self.process = alive::holder(self.follow.path());
        self.written = fs::metadata(self.follow.path()).and_then(|metadata| metadata.modified()).ok();
        self.state = self.tell_state(now);
        self.read_summary();
        Ok(more)
    }

    /// Takes a sample of its process and the machine, on the clock of the run.
    pub(crate) fn add(&mut self, now: SystemTime, sample: &Sample, detail: Option<&Detail>) {
        // Events carry no time of day. The last one was written when the file was, which joins the two clocks.
        let (Some(written), true) = (self.written, self.is_read && self.state == State::Running) else { return };
        let since = now.duration_since(written).unwrap_or_default().as_secs_f64();
        let time = self.story.figures.time + since;
        record(&mut self.story.history, time, sample, detail);
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
    pub fn head(&self) -> Option<&Head> {
        self.story.head.as_ref()
    }

    /// Whether it is under way.
    #[must_use]
    pub fn state(&self) -> &State {
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
        &self.story.figures
    }

    /// Memory and loss over time.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.story.timeline
    }

    /// Memory of its process and of the machine over time: as the run noted it, and closer where somebody watched.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.story.history
    }

    /// What happened besides steps.
    #[must_use]
    pub fn marks(&self) -> &Marks {
        &self.story.marks
    }

    /// `summary.json`, where the run wrote one at its last end.
    #[must_use]
    pub fn summary(&self) -> Option<&Value> {
        self.summary.as_ref()
    }

    /// What was foreseen, against what was measured.
    #[must_use]
    pub fn plan(&self) -> Vec<PlanRow> {
        self.story.plan.rows(self.head(), self.figures(), self.summary())
    }

    /// Lines that could not be read: damaged, or of a newer version.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.story.unread
    }

    /// Changes whenever points or marks that were there before are other ones.
    #[must_use]
    pub fn generation(&self) -> String {
        let story = &self.story;
        let host = story.history.halvings();
        format!("{}.{}.{}.{host}", story.readings, story.timeline.halvings(), story.marks.thinnings())
    }

    /// The state in one sentence.
    #[must_use]
    pub fn state_text(&self) -> String {
        match &self.state {
            State::Waiting => "Waiting for the first event.".to_owned(),
            State::Running => "The run is under way.".to_owned(),
            State::Ended { how: "finished" } => "The run has finished.".to_owned(),
            State::Ended { how: "interrupted" } => "The run was interrupted and can be resumed.".to_owned(),
            State::Ended { how: "line" } => "The run stopped: nothing fits under the line.".to_owned(),
            State::Ended { .. } => "The run ended with an error.".to_owned(),
            State::Gone { quiet } => {
                format!(
                    "The run seems to have been killed: it never said that it ended, and has been silent for {}.",
                    span(*quiet)
                )
            }
        }
    }

    fn tell_state(&self, now: SystemTime) -> State {
        if let Some(how) = self.story.ended {
            return State::Ended { how };
        }
        let Some(written) = self.written else { return State::Waiting };
        let quiet = now.duration_since(written).unwrap_or_default();
        let patience = PATIENCE + Duration::from_secs_f64((5.0 * self.story.step_seconds).clamp(0.0, 3600.0));
        match self.process {
            None if quiet > patience => State::Gone { quiet: quiet.as_secs() },
            _ if self.story.head.is_none() => State::Waiting,
            _ => State::Running,
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

impl Story {
    fn read(&mut self, line: &[u8]) {
        match serde_json::from_slice::<Record>(line) {
            Ok(record) if record.schema <= SCHEMA && record.time.is_finite() => self.add(&record),
            _ => self.unread += 1,
        }
    }

    fn add(&mut self, record: &Record) {
        if let Event::RunStarted { .. } = record.event {
            // The clock of a resumed run starts at zero again.
            self.before = self.figures.time;
            self.ended = None;
        }
        let time = (self.before + record.time.max(0.0)).max(self.figures.time);
        self.figures.time = time;
        self.mark(time, &record.event);
        self.count(time, &record.event);
    }

    fn count(&mut self, time: f64, event: &Event) {
        let figures = &mut self.figures;
        match event {
            Event::RunStarted { workload, device, batch, line, host_line, parameters, .. } => {
                self.head = Some(Head {
                    workload: workload.clone(),
                    device: device.clone(),
                    batch: *batch,
                    parameters: *parameters,
                    line: line.limit(),
                    host_line: Line::limit(*host_line),
                });
            }
            Event::StepDone { .. } => self.step(time, event),
            Event::Probed { micro_batch, peak, .. } => self.plan.probed(*micro_batch, *peak),
            Event::Sized { measures } => self.plan.sized(measures.micro_batch),
            Event::Memory { retries, device_used, resident, host_used, host_total, .. } => {
                figures.retries = Some(*retries);
                figures.host_total = host_total.or(figures.host_total);
                figures.highest_resident = figures.highest_resident.max(Some(*resident));
                let noted = [
                    (RESIDENT, Some(resident.get())),
                    (HOST_USED, host_used.map(Bytes::get)),
                    (DEVICE_USED, device_used.map(Bytes::get)),
                ];
                self.history.push(time, &noted);
            }
            Event::OutOfMemory { .. } => {
                figures.out_of_memory += 1;
                self.unanswered += 1;
            }
            Event::RungTaken { .. } => figures.rungs += 1,
            Event::Cleaned { freed, .. } => {
                figures.cleanings += 1;
                figures.freed = figures.freed.saturating_add(*freed);
            }
            Event::Evaluated { loss, metrics, .. } => {
                figures.eval_loss = Some(*loss).filter(|loss| loss.is_finite());
                figures.metrics = metrics.clone();
                figures.recovered += mem::take(&mut self.unanswered);
            }
            // Not recovered: the figure of this evaluation is missing.
            Event::EvaluationFailed { .. } | Event::MetricMissing { .. } => self.unanswered = 0,
            Event::Saved { .. } => figures.saved += 1,
            Event::Stopped { ending, .. } => {
                self.ended = Some(match ending {
                    Ending::Finished => "finished",
                    Ending::Interrupted => "interrupted",
                    Ending::Line { .. } => "line",
                    Ending::Error { .. } => "error",
                });
            }
            _ => {}
        }
    }

    fn step(&mut self, time: f64, event: &Event) {
        let Event::StepDone { step, loss, samples, tokens, seconds, allocated, peak, reserved, micro_batch, .. } =
            *event
        else {
            return;
        };
        let figures = &mut self.figures;
        figures.step = step.get();
        figures.loss = Some(loss).filter(|loss| loss.is_finite());
        (figures.allocated, figures.peak, figures.reserved) = (allocated, peak, reserved);
        figures.highest_peak = figures.highest_peak.max(peak);
        figures.highest_reserved = figures.highest_reserved.max(reserved);
        figures.micro_batch = micro_batch.get();
        self.plan.trained(micro_batch, peak);
        figures.recovered += mem::take(&mut self.unanswered);
        // Smoothed over some twenty steps.
        let share = if self.step_seconds > 0.0 { 0.05 } else { 1.0 };
        self.step_seconds += share * (seconds.max(0.0) - self.step_seconds);
        figures.samples_per_second = rate(samples, self.step_seconds);
        figures.tokens_per_second = tokens.map(|tokens| rate(tokens, self.step_seconds));
        let finite = u64::from(loss.is_finite());
        let line = self.head.as_ref().and_then(|head| head.line);
        let (step, micro_batch) = (step.get(), micro_batch.get());
        self.timeline.push(Point {
            time,
            step,
            steps: 1,
            allocated,
            peak,
            reserved,
            line,
            loss: if finite == 1 { loss } else { f64::NAN },
            finite,
            micro_batch,
        });
    }

    fn mark(&mut self, time: f64, event: &Event) {
        let Some(text) = sentence(event) else { return };
        let at = Step(self.figures.step);
        let (kind, step, seconds) = match event {
            Event::StepDone { .. } | Event::Memory { .. } => return,
            Event::RunStarted { resumed_at, .. } => (Kind::Started, resumed_at.unwrap_or(Step::ZERO), 0.0),
            Event::Probed { seconds, .. } => (Kind::Probed, at, *seconds),
            Event::Sized { .. } => (Kind::Sized, at, 0.0),
            Event::OutOfMemory { step, .. } => (Kind::OutOfMemory, *step, 0.0),
            Event::RungTaken { step, .. } | Event::TileHalved { step, .. } => (Kind::Rung, *step, 0.0),
            Event::Climbed { step, .. } => (Kind::Climbed, *step, 0.0),
            Event::Cleaned { step, seconds, .. } => (Kind::Cleaned, *step, *seconds),
            Event::Evaluated { step, seconds, .. } => (Kind::Evaluated, *step, *seconds),
            Event::EvaluationFailed { step, .. } | Event::MetricMissing { step, .. } => {
                (Kind::EvaluationFailed, *step, 0.0)
            }
            Event::Saved { step, seconds, .. } => (Kind::Saved, *step, *seconds),
            Event::Skipped { step, .. } => (Kind::Skipped, *step, 0.0),
            Event::StoppedEarly { step, .. } | Event::Stopped { step, .. } => (Kind::Ended, *step, 0.0),
        };
        let loss = match event {
            Event::Evaluated { loss, .. } if loss.is_finite() => Some(*loss),
            _ => None,
        };
        let detail = match event {
            Event::OutOfMemory { message, .. } => Some(shortened(message)),
            _ => None,
        };
        let text = shortened(&text);
        self.marks.push(Mark { kind, time, seconds, step, first_step: step, count: 1, loss, text, detail });
    }
}

fn rate(number: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { number as f64 / seconds } else { 0.0 }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} ...", &text[..end]),
    }
}

/// The steps that the settings of a run ask for.
fn planned_steps(folder: &Path) -> Option<u64> {
    let path = folder.join(CONFIG);
    let text = lowtide_settings::read(&path).ok()?;
    Some(RunSettings::load(Some((&path, &text)), &[]).ok()?.settings.train.steps)
}

/// So many seconds as people say it.
#[must_use]
pub fn span(seconds: u64) -> String {
    let of = |number: u64, unit: &str| format!("{number} {unit}{}", if number == 1 { "" } else { "s" });
    match seconds {
        0..120 => of(seconds, "second"),
        120..7200 => of(seconds / 60, "minute"),
        7200..172_800 => of(seconds / 3600, "hour"),
        _ => of(seconds / 86_400, "day"),
    }
}
