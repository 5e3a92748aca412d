//! A checkpoint of a run that somebody asks for.

use std::path::{Path, PathBuf};

use lowtide_core::{CheckpointChoice, Step};

use super::checkpoint_choice::{fallback, find};
use super::checkpoints::Checkpoints;
use super::run_files::{CONFIG, config_note, settings_text};
use crate::error::{Fallback, FolderProblem, Purpose, Result, TrainError};

/// A checkpoint of a run, to be evaluated.
#[derive(Debug)]
pub struct RunCheckpoint {
    folder: PathBuf,
    /// The checkpoint's own folder.
    pub checkpoint: PathBuf,
    step: Step,
}

impl RunCheckpoint {
    /// Finds the checkpoint in the folder of a run, which may be one that trains at this moment.
    pub fn find(folder: &Path, choice: CheckpointChoice) -> Result<RunCheckpoint> {
        if !folder.join(CONFIG).is_file() {
            return Err(TrainError::Folder { path: folder.to_owned(), problem: FolderProblem::NoRun });
        }
        let (step, checkpoint) = find(choice, &Checkpoints::in_run(folder))?;
        Ok(RunCheckpoint { folder: folder.to_owned(), checkpoint, step })
    }

    /// The settings that the run was started with, as text, and where that is.
    pub fn settings_text(&self) -> Result<(PathBuf, String)> {
        settings_text(&self.folder)
    }

    /// What a person should know of its configuration.
    pub(crate) fn note(&self) -> Option<String> {
        config_note(&self.folder)
    }

    /// The newest whole one before it.
    pub(crate) fn fallback(&self) -> Option<Fallback> {
        fallback(&self.folder, self.step, Purpose::Evaluation)
    }
}
