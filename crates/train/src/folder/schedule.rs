//! The schedule of a run: how each of its steps was computed, so that another run can be computed alike.

use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, Measures, MicroBatch, SCHEMA, Step};
use lowtide_journal::{LineReader, LineState};
use lowtide_torch::tch::Kind;
use serde::{Deserialize, Serialize};

use crate::error::{Result, ScheduleProblem, TrainError};
use crate::step::precision_name;

/// The schedule's name in a run folder.
pub(super) const SCHEDULE: &str = "schedule.jsonl";

/// The most bytes of a schedule that is followed: some ten million steps.
const MOST_BYTES: u64 = 1 << 30;

/// One line of `schedule.jsonl`: the measures of a committed step that change its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduleLine {
    schema: u32,
    pub(crate) step: Step,
    samples: u32,
    micro_batch: MicroBatch,
    #[serde(default = "whole")]
    loss_chunks: NonZeroU32,
    #[serde(default)]
    recompute: u32,
    #[serde(default)]
    narrow: bool,
    /// The kind of numbers that it was computed in.
    #[serde(default)]
    precision: Option<String>,
}

/// The steps of a run that another one follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    path: PathBuf,
    lines: Vec<ScheduleLine>,
}

impl ScheduleLine {
    pub(crate) fn new(step: Step, samples: u32, measures: &Measures, kind: Kind) -> ScheduleLine {
        let Measures { micro_batch, loss_chunks, recompute, narrow, .. } = *measures;
        let precision = Some(precision_name(kind).to_owned());
        ScheduleLine { schema: SCHEMA, step, samples, micro_batch, loss_chunks, recompute, narrow, precision }
    }
}

impl Schedule {
    /// Reads the schedule of the run in `folder`.
    pub fn read(folder: &Path) -> Result<Schedule> {
        let path = folder.join(SCHEDULE);
        let refuse = |problem| TrainError::Schedule { path: path.clone(), problem };
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => refuse(ScheduleProblem::Missing),
            _ => TrainError::at(&path)(source),
        };
        let file = lowtide_disk::open(&path).map_err(unreadable)?;
        let length = file.metadata().map_err(TrainError::at(&path))?.len();
        if length > MOST_BYTES {
            return Err(refuse(ScheduleProblem::TooLarge { bytes: Bytes(length), most: Bytes(MOST_BYTES) }));
        }
        let mut reader = LineReader::new(file, 0);
        let mut lines = Vec::new();
        while let Some(line) = reader.read_line().map_err(TrainError::at(&path))? {
            let step = lines.len() as u64 + 1;
            let wrong = |problem| refuse(ScheduleProblem::Line { line: step, problem });
            let text = line.text.filter(|_| line.state != LineState::Damaged);
            let text = text.ok_or_else(|| wrong("it is damaged: its checksum is wrong".to_owned()))?;
            let line: ScheduleLine = serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
            if line.schema != SCHEMA {
                return Err(wrong(format!("its schema is {}, and this program reads {SCHEMA}", line.schema)));
            }
            if line.step != Step(step) {
                return Err(wrong(format!("it is of step {}, and step {step} comes next", line.step)));
            }
            lines.push(line);
        }
        Ok(Schedule { path, lines })
    }

    /// Drops the lines of steps after `step` from the file at `path`: they are made again. What is damaged before them is
    /// told, in words.
    pub(super) fn cut(path: &Path, step: Step) -> Result<Option<String>> {
        let file = match lowtide_disk::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(TrainError::at(path))?,
        };
        let length = file.metadata().map_err(TrainError::at(path))?.len();
        if length > MOST_BYTES {
            let problem = ScheduleProblem::TooLarge { bytes: Bytes(length), most: Bytes(MOST_BYTES) };
            return Err(TrainError::Schedule { path: path.to_owned(), problem });
        }
        let mut reader = LineReader::new(file, 0);
        let (mut number, mut kept, mut kept_bytes, mut damaged) = (0u64, 0u64, 0, None);
        while let Some(line) = reader.read_line().map_err(TrainError::at(path))? {
            number += 1;
            let read = line.text.filter(|_| line.state == LineState::Good).map(serde_json::from_slice::<ScheduleLine>);
            match read {
                Some(Ok(read)) if read.step > step => break,
                Some(Ok(_)) => (kept, kept_bytes) = (number, line.end),
                _ if line.state == LineState::Torn => {}
                _ => damaged = damaged.or(Some(number)),
            }
        }
        if kept_bytes < length {
            let file = OpenOptions::new().write(true).open(path);
            file.and_then(|file| file.set_len(kept_bytes)).map_err(TrainError::at(path))?;
        }
        // One of a step that is made again is none of our concern.
        let first = damaged.filter(|first| *first < kept || kept < step.get());
        Ok(first.map(|first| format!("line {first} of {SCHEDULE} is damaged: this run can be followed by no other")))
    }

    /// Refuses to be followed by a run with other steps.
    pub(crate) fn fits(&self, steps: u64, batch: u32) -> Result<()> {
        let refuse = |problem| Err(TrainError::Schedule { path: self.path.clone(), problem });
        if let Some(line) = self.lines.iter().find(|line| line.samples != batch) {
            return refuse(ScheduleProblem::Batch { there: line.samples, here: batch });
        }
        let there = self.lines.len() as u64;
        if there < steps {
            return refuse(ScheduleProblem::TooShort { there, here: steps });
        }
        Ok(())
    }

    /// Refuses to be followed by a run that would compute a step in another kind of numbers.
    pub(crate) fn agrees(&self, kind_in: impl Fn(&Measures) -> Kind) -> Result<()> {
        for line in &self.lines {
            let now = Measures::new(line.micro_batch, line.micro_batch);
            let here = precision_name(kind_in(&Measures { narrow: line.narrow, ..now }));
            let Some(there) = line.precision.clone().filter(|there| there != here) else { continue };
            let problem = ScheduleProblem::Precision { step: line.step, there, here, narrowed: line.narrow };
            return Err(TrainError::Schedule { path: self.path.clone(), problem });
        }
        Ok(())
    }

    /// The measures of a step: those of the schedule, and `now` for all that it does not tell.
    pub(crate) fn at(&self, step: Step, now: Measures) -> Measures {
        let index = step.get().checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let Some(line) = index.and_then(|index| self.lines.get(index)) else {
            return now;
        };
        let ScheduleLine { micro_batch, loss_chunks, recompute, narrow, .. } = *line;
        Measures { micro_batch, loss_chunks, recompute, narrow, ..now }
    }
}

fn whole() -> NonZeroU32 {
    NonZeroU32::MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::sealed;
    use std::fs;

    const LINES: &str = r#"{"schema":1,"step":1,"samples":8,"micro_batch":8}
{"schema":1,"step":2,"samples":8,"micro_batch":4,"loss_chunks":2,"recompute":1}
"#;

    fn read(text: &str) -> Result<Schedule> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(SCHEDULE), text).unwrap();
        Schedule::read(folder.path())
    }

    #[track_caller]
    fn refused(result: Result<impl std::fmt::Debug>, expect: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.ends_with(&format!("schedule.jsonl: {expect}")), "{error}");
    }

    #[test]
    fn a_step_is_computed_as_it_was() {
        let schedule = read(LINES).unwrap();
        let first = Measures::new(MicroBatch::new(8).unwrap(), MicroBatch::ONE);
        assert_eq!(schedule.at(Step(1), first), first);
        let second = schedule.at(Step(2), first);
        assert_eq!(second.in_phase(lowtide_core::Phase::Forward), "micro-batch 4, loss in 2 chunks, recompute level 1");
        assert_eq!(second.eval_micro_batch, MicroBatch::ONE);
        schedule.fits(2, 8).unwrap();
    }

    #[test]
    fn one_that_does_not_fit_is_refused() {
        let schedule = read(LINES).unwrap();
        refused(schedule.fits(3, 8), "it has 2 steps, and this run has 3");
        refused(schedule.fits(2, 4), "its steps have 8 samples, and this run's have 4");
        refused(Schedule::read(Path::new("/nowhere")), "there is no schedule to follow");
        refused(read(&LINES[50..]), "line 1: it is of step 2, and step 1 comes next");
        refused(read("{"), "line 1: EOF while parsing an object at line 1 column 1");
        refused(read("{\n"), "line 1: it is damaged: its checksum is wrong");
        let other = sealed(LINES.lines().next().unwrap().to_owned()).replace("\"micro_batch\":8", "\"micro_batch\":9");
        refused(read(&(other + "\n")), "line 1: it is damaged: its checksum is wrong");
    }

    #[test]
    fn the_schedule_of_steps_that_are_made_again_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(SCHEDULE);
        let line = |step| format!("{{\"schema\":1,\"step\":{step},\"samples\":8,\"micro_batch\":8}}\n");
        let text: String = (1..=4).map(line).collect();
        fs::write(&path, format!("{text}{{\"schema\":1,\"st")).unwrap();
        assert_eq!(Schedule::cut(&path, Step(2)).unwrap(), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), line(1) + &line(2));
        fs::write(&path, text.replace("\"step\":1", "\"step\";1")).unwrap();
        let damage = "line 1 of schedule.jsonl is damaged: this run can be followed by no other";
        assert_eq!(Schedule::cut(&path, Step(2)).unwrap().as_deref(), Some(damage));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    }
}
