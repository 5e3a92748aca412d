//! Which checkpoint of a run somebody asks for.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use lowtide_core::Step;

use super::checkpoint;
use super::checkpoints::Checkpoints;
use crate::error::{Fallback, Purpose, Result, TrainError};

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// The newest.
    Newest,
    /// The one with the lowest loss of those that were evaluated.
    Best,
    /// The one after this step.
    Step(u64),
}

impl FromStr for CheckpointChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<CheckpointChoice, String> {
        match text {
            "newest" => Ok(CheckpointChoice::Newest),
            "best" => Ok(CheckpointChoice::Best),
            step => step
                .parse()
                .map(CheckpointChoice::Step)
                .map_err(|_| "expected newest, best or the number of a step".to_owned()),
        }
    }
}

impl CheckpointChoice {
    /// The step and the folder of the one that is asked for.
    pub(super) fn find(self, all: &Checkpoints) -> Result<(Step, PathBuf)> {
        let found = match self {
            CheckpointChoice::Newest => all.newest(),
            CheckpointChoice::Best => all.best()?.map(|step| (step, all.of(step))),
            CheckpointChoice::Step(step) => all.complete().into_iter().find(|(there, _)| *there == Step(step)),
        };
        found.ok_or_else(|| TrainError::Checkpoint { path: all.path.clone(), problem: self.missing(all) })
    }

    fn missing(self, all: &Checkpoints) -> String {
        let steps: Vec<String> = all.complete().iter().map(|(step, _)| step.to_string()).collect();
        match (self, steps.as_slice()) {
            (_, []) => "there is no checkpoint".to_owned(),
            (CheckpointChoice::Step(step), _) => {
                format!("there is no checkpoint after step {step}, only after step {}", steps.join(", "))
            }
            _ => "no checkpoint that is there was evaluated".to_owned(),
        }
    }
}

/// The newest whole checkpoint of the run in a folder before a step, for those who cannot use that of the step.
pub(super) fn fallback(folder: &Path, step: Step, purpose: Purpose) -> Option<Fallback> {
    let all = Checkpoints::in_run(folder).complete();
    let mut older = all.into_iter().rev().filter(|(other, _)| *other < step);
    let (step, _) = older.find(|(_, path)| checkpoint::is_whole(path))?;
    Some(Fallback { purpose, folder: folder.to_owned(), step })
}
