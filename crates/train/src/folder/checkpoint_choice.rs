//! The checkpoint of a run that somebody asks for.

use std::path::{Path, PathBuf};

use lowtide_core::{CheckpointChoice, Step};

use super::checkpoint;
use super::checkpoints::Checkpoints;
use crate::error::{Fallback, Purpose, Result, TrainError};

/// The step and the folder of the one that is asked for.
pub(super) fn find(choice: CheckpointChoice, all: &Checkpoints) -> Result<(Step, PathBuf)> {
    let found = match choice {
        CheckpointChoice::Newest => all.newest(),
        CheckpointChoice::Best => all.best()?.map(|step| (step, all.of(step))),
        CheckpointChoice::Step(step) => all.complete().into_iter().find(|(there, _)| *there == Step(step)),
    };
    found.ok_or_else(|| TrainError::Checkpoint { path: all.path.clone(), problem: missing(choice, all) })
}

fn missing(choice: CheckpointChoice, all: &Checkpoints) -> String {
    let steps: Vec<String> = all.complete().iter().map(|(step, _)| step.to_string()).collect();
    match (choice, steps.as_slice()) {
        (_, []) => "there is no checkpoint".to_owned(),
        (CheckpointChoice::Step(step), _) => {
            format!("there is no checkpoint after step {step}, only after step {}", steps.join(", "))
        }
        _ => "no checkpoint that is there was evaluated".to_owned(),
    }
}

/// The newest whole checkpoint of the run in a folder before a step, for those who cannot use that of the step.
pub(super) fn fallback(folder: &Path, step: Step, purpose: Purpose) -> Option<Fallback> {
    let all = Checkpoints::in_run(folder).complete();
    let mut older = all.into_iter().rev().filter(|(other, _)| *other < step);
    let (step, _) = older.find(|(_, path)| checkpoint::is_whole(path))?;
    Some(Fallback { purpose, folder: folder.to_owned(), step })
}
