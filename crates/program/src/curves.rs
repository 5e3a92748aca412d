//! The curves of a run for TensorBoard, made from its events.
//!
//! Names and units are those that people have in their own scripts: `memory/gpu0_allocated_gb` is in GiB. A file that
//! cannot be written is told of once, and the run goes on without.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lowtide_core::{Event, Record, Relocation, Step};
use lowtide_disk::HeldFolder;
use lowtide_tensorboard::{Error, Options, Retention, Scalar, Writer};

/// Where the event files are, in the run folder.
const FOLDER: &str = "tensorboard";
/// Seconds that points may wait in memory.
const WAIT: f64 = 5.0;

/// Writes the curves of one run.
pub(crate) struct Curves {
    /// The run folder.
    folder: PathBuf,
    /// The same once the run has begun, so that it is found where it is moved to.
    held: Option<HeldFolder>,
    /// The device's part of a name: `gpu0` or `cpu`.
    device: String,
    resumes_at: Option<u64>,
    state: State,
    flushed: f64,
}

enum State {
    /// Nothing came yet that makes a curve.
    Waiting,
    Open(Writer),
    /// It failed, and that was told.
    Off,
}

impl Curves {
    /// The curves of the run in `folder`; nothing is written yet.
    pub(crate) fn new(folder: &Path) -> Curves {
        let (folder, device) = (folder.to_owned(), "cpu".to_owned());
        Curves { folder, held: None, device, resumes_at: None, state: State::Waiting, flushed: 0.0 }
    }

    /// Takes an event of the run; a problem in words, where there is one.
    pub(crate) fn event(&mut self, record: &Record) -> Option<String> {
        if let Event::RunStarted { device, resumed_at, .. } = &record.event {
            self.device = device.replace("cuda:", "gpu");
            self.resumes_at = resumed_at.map(|step| step.get() + 1);
            self.held = HeldFolder::open(&self.folder).ok();
        }
        if let Event::Relocated { step, folder, cause: Relocation::Deleted } = &record.event {
            self.held = HeldFolder::open(Path::new(folder)).ok();
            self.resumes_at = Some(step.get() + 1);
            self.state = State::Waiting;
        }
        let written = self.write(record);
        written.err().map(|error| {
            self.state = State::Off;
            format!("note: there will be no more curves for TensorBoard: {error}")
        })
    }

    fn write(&mut self, record: &Record) -> Result<(), Error> {
        let curves = if record.is_others_memory() { Vec::new() } else { self.curves(&record.event) };
        let text = text(&record.event);
        if curves.is_empty() && text.is_none() && !matches!(record.event, Event::Stopped { .. }) {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        if matches!(self.state, State::Waiting) {
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let host = if host.trim().is_empty() { "localhost".to_owned() } else { host.trim().to_owned() };
            let options = Options { host, resumes_at: self.resumes_at, ..Options::default() };
            let folder = self.held.as_ref().map_or(&*self.folder, HeldFolder::way);
            self.state = State::Open(Writer::create(&folder.join(FOLDER), now, &options)?);
        }
        let State::Open(writer) = &mut self.state else { return Ok(()) };
        for (tag, step, value, keep) in &curves {
            writer.scalar(Scalar { tag, step: step.get(), time: now, value: *value, keep: *keep })?;
        }
        if let Some((tag, step, text)) = &text {
            writer.text(tag, step.get(), now, text)?;
        }
        let is_step = matches!(record.event, Event::StepDone { .. });
        if !is_step || record.time - self.flushed > WAIT {
            self.flushed = record.time;
            writer.flush()?;
        }
        Ok(())
    }

    /// The points that an event adds: name, step, value, and what is kept of many.
    fn curves(&self, event: &Event) -> Vec<(String, Step, f64, Retention)> {
        let device = &self.device;
        match event {
            Event::StepDone { step, loss, learning_rate, samples, seconds, allocated, peak, reserved, .. } => {
                let speed = *samples as f64 / seconds.max(f64::MIN_POSITIVE);
                vec![
                    ("train/loss".to_owned(), *step, *loss, Retention::Last),
                    ("train/learning_rate".to_owned(), *step, *learning_rate, Retention::Last),
                    ("train/samples_per_second".to_owned(), *step, speed, Retention::Last),
                    (format!("memory/{device}_allocated_gb"), *step, allocated.as_gib(), Retention::Largest),
                    (format!("memory/{device}_peak_gb"), *step, peak.as_gib(), Retention::Largest),
                    (format!("memory/{device}_reserved_gb"), *step, reserved.as_gib(), Retention::Largest),
                ]
            }
            Event::Evaluated { step, loss, metrics, .. } => {
                let metrics =
                    metrics.iter().map(|(name, value)| (format!("eval/{name}"), *step, value, Retention::Last));
                std::iter::once(("eval/loss".to_owned(), *step, *loss, Retention::Last)).chain(metrics).collect()
            }
            Event::Memory { step, device_used, resident, host_used, .. } => {
                let mut curves =
                    vec![("memory/process_resident_gb".to_owned(), *step, resident.as_gib(), Retention::Largest)];
                let used = device_used.map(|used| (format!("memory/{device}_used_gb"), used));
                let host = host_used.map(|used| ("memory/system_used_gb".to_owned(), used));
                curves.extend(
                    used.into_iter().chain(host).map(|(tag, used)| (tag, *step, used.as_gib(), Retention::Largest)),
                );
                curves
            }
            _ => Vec::new(),
        }
    }
}

/// The text that an event adds: name, step and words.
fn text(event: &Event) -> Option<(&'static str, Step, String)> {
    let tag = if matches!(event, Event::RungTaken { .. }) { "memory/recovery" } else { "memory/out_of_memory" };
    Some((tag, event.step()?, event.note()?))
}
