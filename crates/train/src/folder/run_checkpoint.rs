//! A checkpoint of a run that somebody asks for.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use lowtide_core::Step;

use super::checkpoints::Checkpoints;
use super::run_folder::{CONFIG, settings_text};
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

/// A checkpoint of a run, to be evaluated.
#[derive(Debug)]
pub struct RunCheckpoint {
    folder: PathBuf,
    /// The checkpoint's own folder.
    pub checkpoint: PathBuf,
}

impl RunCheckpoint {
    /// Finds the checkpoint in the folder of a run, which may be one that trains at this moment.
    pub fn find(folder: &Path, choice: CheckpointChoice) -> Result<RunCheckpoint> {
        if !folder.join(CONFIG).is_file() {
            return Err(TrainError::Folder { path: folder.to_owned(), problem: FolderProblem::NoRun });
        }
        let all = Checkpoints::in_run(folder);
        let found = match choice {
            CheckpointChoice::Newest => all.newest().map(|(_, path)| path),
            CheckpointChoice::Best => all.best().map(|step| all.of(step)),
            CheckpointChoice::Step(step) => Some(all.of(Step(step))).filter(|checkpoint| checkpoint.is_dir()),
        };
        let checkpoint =
            found.ok_or_else(|| TrainError::Checkpoint { path: all.path.clone(), problem: missing(&all, choice) })?;
        Ok(RunCheckpoint { folder: folder.to_owned(), checkpoint })
    }

    /// The settings that the run was started with, as text, and where that is.
    pub fn settings_text(&self) -> Result<(PathBuf, String)> {
        settings_text(&self.folder)
    }
}

fn missing(all: &Checkpoints, choice: CheckpointChoice) -> String {
    let steps: Vec<String> = all.complete().iter().map(|(step, _)| step.to_string()).collect();
    match (choice, steps.as_slice()) {
        (_, []) => "there is no checkpoint".to_owned(),
        (CheckpointChoice::Step(step), _) => {
            format!("there is no checkpoint after step {step}, only after step {}", steps.join(", "))
        }
        _ => "no checkpoint that is there was evaluated".to_owned(),
    }
}
