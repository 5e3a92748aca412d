//! A checkpoint of a run that somebody asks for.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lowtide_core::Step;

use super::checkpoints::Checkpoints;
use super::run_folder::{CONFIG, checkpoints_in};
use crate::error::{FolderProblem, Result, TrainError};

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

impl fmt::Display for CheckpointChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointChoice::Newest => formatter.write_str("newest"),
            CheckpointChoice::Best => formatter.write_str("best"),
            CheckpointChoice::Step(step) => step.fmt(formatter),
        }
    }
}

/// A checkpoint of a run, to be evaluated.
#[derive(Debug)]
pub struct RunCheckpoint {
    folder: PathBuf,
    checkpoint: PathBuf,
}

impl RunCheckpoint {
    /// Finds the checkpoint in the folder of a run, which may be one that trains at this moment.
    pub fn find(folder: &Path, choice: CheckpointChoice) -> Result<RunCheckpoint> {
        if !folder.join(CONFIG).is_file() {
            return Err(TrainError::Folder { path: folder.to_owned(), problem: FolderProblem::NoRun });
        }
        let all = checkpoints_in(folder);
        let found = match choice {
            CheckpointChoice::Newest => all.newest().map(|(_, path)| path),
            CheckpointChoice::Best => all.best().map(|step| all.of(step)),
            CheckpointChoice::Step(step) => Some(all.of(Step(step))).filter(|checkpoint| checkpoint.is_dir()),
        };
        let checkpoint = found
            .ok_or_else(|| TrainError::Checkpoint { path: all.path().to_owned(), problem: missing(&all, choice) })?;
        Ok(RunCheckpoint { folder: folder.to_owned(), checkpoint })
    }

    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Path {
        &self.checkpoint
    }

    /// The settings that the run was started with, as text, and where that is.
    pub fn settings_text(&self) -> Result<(PathBuf, String)> {
        let path = self.folder.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(TrainError::at(&path))?;
        Ok((path, text))
    }
}

fn missing(all: &Checkpoints, choice: CheckpointChoice) -> String {
    let steps: Vec<String> = all.complete().iter().map(|(step, _)| step.to_string()).collect();
    match (choice, steps.as_slice()) {
        (_, []) => "there is no checkpoint".to_owned(),
        (CheckpointChoice::Best, _) => "no checkpoint that is there was evaluated".to_owned(),
        (choice, _) => format!("there is no checkpoint after step {choice}, only after step {}", steps.join(", ")),
    }
}
