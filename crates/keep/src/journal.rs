//! What happens to a command, as events that others read while it runs.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lowtide_config::command::quoted;
use lowtide_core::{Bytes, CardMemory, CommandOutcome, Ending, Event, Step};
use lowtide_journal::{EVENTS, EventFile, LineFile};
use lowtide_sensors::Sample;

use crate::{BatchSplit, Chronicle, Conclusion, EndKind, Launch, StartRecord};

/// Samples are written this many seconds apart in the first seconds, in the first minute, in the first hour, and later.
const PAUSES: [(f64, f64); 4] = [(5.0, 0.1), (60.0, 1.0), (3600.0, 5.0), (f64::INFINITY, 15.0)];

/// The events of a run, in its folder. Those who write share it.
///
/// A file that takes no more, as on a full disk, is given up: the command is worth more than its story.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    begun: Instant,
    place: Arc<Mutex<Place>>,
}

#[derive(Debug)]
struct Place {
    file: Option<EventFile>,
    /// When the last sample was written.
    sampled: Option<f64>,
}

impl Journal {
    /// Makes the file, and holds it locked: by that, others see that the run goes on.
    pub(crate) fn open(folder: &Path) -> Self {
        let file = LineFile::open(&folder.join(EVENTS)).ok();
        // Where a file system has no locks, a run that is silent for long is taken for gone.
        let _ = file.as_ref().map(LineFile::is_anothers);
        let file = file.map(|file| EventFile::new(Some(file)));
        Self { begun: Instant::now(), place: Arc::new(Mutex::new(Place { file, sampled: None })) }
    }

    pub(crate) fn started(&self, number: usize, launch: &Launch, batch: Option<BatchSplit>, from: Option<&Path>) {
        self.write(Event::CommandStarted {
            start: u32::try_from(number).unwrap_or(u32::MAX),
            command: quoted(&launch.command),
            micro_batch: batch.map(|batch| batch.micro),
            accumulation: batch.map(|batch| batch.accum),
            resumed_from: from.map(|path| path.to_string_lossy().into_owned()),
        });
    }

    /// Writes a sample down where one is due; `step` is asked for only then.
    pub(crate) fn sampled(&self, sample: &Sample, step: impl FnOnce() -> Option<u64>) {
        let Some(process) = sample.process.known() else { return };
        if !self.is_due() {
            return;
        }
        let machine = sample.machine.known().map(|it| (it.total_bytes - it.available_bytes, it.total_bytes));
        let group = sample.cgroup.known().and_then(|it| Some((it.used_bytes?, it.limit_bytes?)));
        // The smaller of the two is what runs out first.
        let host = [machine, group].into_iter().flatten().min_by_key(|(_, total)| *total);
        let memory = |card: &lowtide_sensors::Gpu| {
            let memory = card.memory.known()?;
            Some(CardMemory { index: card.index, used: Bytes(memory.used_bytes), total: Bytes(memory.total_bytes) })
        };
        self.write(Event::CommandMemory {
            step: Step(step().unwrap_or(0)),
            resident: Bytes(process.resident_bytes.saturating_add(sample.children.resident_bytes)),
            host_used: host.map(|(used, _)| Bytes(used)),
            host_total: host.map(|(_, total)| Bytes(total)),
            cards: sample.gpus.cards.iter().filter_map(memory).collect(),
        });
    }

    /// Uses of a reserve, which processes have told.
    pub(crate) fn overflowed(&self, uses: &[Event]) {
        uses.iter().for_each(|event| self.write(event.clone()));
    }

    pub(crate) fn ended(&self, number: usize, record: &StartRecord) {
        self.write(Event::CommandEnded {
            start: u32::try_from(number).unwrap_or(u32::MAX),
            step: Step(record.step.unwrap_or(0)),
            seconds: record.seconds,
            outcome: match record.outcome {
                EndKind::Finished => CommandOutcome::Finished,
                EndKind::Interrupted => CommandOutcome::Interrupted,
                EndKind::OutOfMemory => CommandOutcome::OutOfMemory,
                EndKind::Failed => CommandOutcome::Failed,
            },
            cause: record.cause.clone(),
        });
    }

    pub(crate) fn over(&self, chronicle: &Chronicle) {
        let last = chronicle.starts.last();
        let message = match chronicle.ending {
            Conclusion::Failed => "the command failed for a reason that less memory does not fix",
            Conclusion::CheckpointsInDanger => "a restart might write over a checkpoint that could not be copied",
            _ => "memory ran out, and nothing more can be tried",
        };
        self.write(Event::Stopped {
            step: Step(last.and_then(|start| start.step).unwrap_or(0)),
            ending: match chronicle.ending {
                Conclusion::Finished => Ending::Finished,
                Conclusion::Interrupted => Ending::Interrupted,
                _ => Ending::Error { message: message.to_owned() },
            },
        });
    }

    /// Removes the file, where nothing was run.
    pub(crate) fn drop_in(self, folder: &Path) {
        let _ = fs::remove_file(folder.join(EVENTS));
    }

    fn is_due(&self) -> bool {
        let now = self.begun.elapsed().as_secs_f64();
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = PAUSES.iter().find(|(until, _)| now < *until).map_or(0.0, |(_, pause)| *pause);
        let is_due = place.file.is_some() && place.sampled.is_none_or(|sampled| now - sampled >= pause);
        if is_due {
            place.sampled = Some(now);
        }
        is_due
    }

    fn write(&self, event: Event) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.file.as_mut().is_some_and(|file| file.write(event).is_err()) {
            place.file = None;
        }
    }
}
