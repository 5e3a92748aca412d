//! Which checkpoint of a run somebody asks for.

use std::path::PathBuf;
use std::str::FromStr;

use lowtide_core::Step;

use super::checkpoints::Checkpoints;
use crate::error::{Result, TrainError};

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
