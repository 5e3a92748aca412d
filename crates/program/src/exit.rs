//! How a command ends: exit codes and its last lines.

use std::process::ExitCode;

use lowtide_train::{Fault, RunEnding, TrainError};

use crate::Program;
use crate::output::to_stderr;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All was done.
    Finished,
    /// Nothing fits under the line; the state is saved.
    Line,
    /// The user stopped it; the state is saved.
    Interrupted,
    /// Something failed that was told of already, and the rest was done.
    Failed,
}

impl Exit {
    /// How two runs ended together: as the one that there is more to do about.
    pub(crate) fn and(self, other: Exit) -> Exit {
        let order = [Exit::Interrupted, Exit::Line, Exit::Failed];
        order.into_iter().find(|exit| [self, other].contains(exit)).unwrap_or(Exit::Finished)
    }
}

impl From<RunEnding> for Exit {
    fn from(ending: RunEnding) -> Exit {
        match ending {
            RunEnding::Finished => Exit::Finished,
            RunEnding::Interrupted => Exit::Interrupted,
            RunEnding::Line => Exit::Line,
        }
    }
}

/// Prints an error once, with its hint, and gives the exit code.
pub(crate) fn report(program: Program, result: anyhow::Result<Exit>) -> ExitCode {
    let error = match result {
        Ok(Exit::Finished) => return ExitCode::SUCCESS,
        Ok(Exit::Line) => return ExitCode::from(3),
        Ok(Exit::Interrupted) => return ExitCode::from(130),
        Ok(Exit::Failed) => return ExitCode::FAILURE,
        Err(error) => error,
    };
    let train = error.downcast_ref::<TrainError>();
    match train {
        Some(error) => tell(program, error),
        None => to_stderr(&format!("error: {error:#}")),
    }
    match train.map(TrainError::fault) {
        Some(Fault::Memory) => ExitCode::from(3),
        Some(Fault::Input) => ExitCode::from(2),
        Some(Fault::Other) | None => ExitCode::FAILURE,
    }
}

/// Prints an error, whose text holds its causes already, and its hint.
pub(crate) fn tell(program: Program, error: &TrainError) {
    let text = format!("error: {error}");
    match error {
        // What LibTorch says may have several lines.
        TrainError::Engine(_) => text.lines().for_each(to_stderr),
        _ => to_stderr(&text),
    }
    if let Some(hint) = error.hint(program.name) {
        to_stderr(&format!("hint: {hint}"));
    }
}
