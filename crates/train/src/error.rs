//! What can stop a run before or while it trains.

use std::io;
use std::path::PathBuf;

use lowtide_core::{Bytes, Stop};
use lowtide_settings::SettingsError;
use lowtide_torch::TorchError;

/// The result of a part of a run.
pub type Result<T> = std::result::Result<T, TrainError>;

/// An error of a run; a variant for each thing a person does about it.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A setting is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The line leaves no room for what the model holds at rest.
    #[error("the model and its optimizer need {needed} before the first sample, and the line is {line}")]
    LineTooSmall {
        /// Parameters, gradients and moments.
        needed: Bytes,
        /// The line.
        line: Bytes,
    },
    /// The run folder cannot be used.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: FolderProblem,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A checkpoint does not hold what it should.
    #[error("{}: {problem}", path.display())]
    Checkpoint {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The engine failed for a reason other than memory.
    #[error(transparent)]
    Engine(#[from] TorchError),
    /// Nothing that is allowed fits under the line; the last state is saved.
    #[error("{stop}")]
    Line {
        /// What was tried.
        stop: Box<Stop>,
        /// The checkpoint that holds the last committed state.
        checkpoint: PathBuf,
    },
}

/// What can be wrong with a run folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FolderProblem {
    /// Something else is there.
    #[error("this is a file, and the run needs a folder")]
    IsFile,
    /// It holds a run.
    #[error("a run is already there")]
    HasRun,
    /// It holds something else.
    #[error("this folder is not empty and holds no run")]
    NotEmpty,
    /// It cannot be written to.
    #[error("the folder cannot be written to")]
    NotWritable,
    /// There is nothing to go on from.
    #[error("there is no run to resume")]
    NothingToResume,
}

impl TrainError {
    /// What a person can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            TrainError::Settings(error) => error.hint(),
            TrainError::LineTooSmall { needed, .. } => {
                Some(format!("draw the line well above {needed}, or choose a smaller model"))
            }
            TrainError::Folder { problem, path } => folder_hint(*problem, path),
            TrainError::Line { checkpoint, .. } => Some(format!(
                "the last state is saved in {}: raise the line or make the model smaller, then use --resume",
                checkpoint.display()
            )),
            TrainError::Engine(TorchError::Device(_)) => {
                Some("use --device cpu, or auto to take what is there".to_owned())
            }
            TrainError::File { .. } | TrainError::Checkpoint { .. } | TrainError::Engine(_) => None,
        }
    }

    /// Whether the person who started the run can mend it: bad input, not a fault of ours.
    #[must_use]
    pub fn is_users(&self) -> bool {
        match self {
            TrainError::Settings(_)
            | TrainError::LineTooSmall { .. }
            | TrainError::Folder { .. }
            | TrainError::Checkpoint { .. }
            | TrainError::File { .. } => true,
            TrainError::Engine(error) => matches!(error, TorchError::Device(_)),
            TrainError::Line { .. } => false,
        }
    }
}

fn folder_hint(problem: FolderProblem, path: &std::path::Path) -> Option<String> {
    match problem {
        FolderProblem::HasRun => {
            Some(format!("use --resume --out {} to go on with it, or another --out", path.display()))
        }
        FolderProblem::IsFile | FolderProblem::NotEmpty | FolderProblem::NotWritable => {
            Some("name another folder with --out".to_owned())
        }
        FolderProblem::NothingToResume => Some("leave --resume out to start a new run".to_owned()),
    }
}
