//! Exit codes and the last words of a command.

use std::process::ExitCode;

use lowtide_train::{Stopped, TrainError};

use crate::outlook::to_stderr;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All was done.
    Finished,
    /// Nothing fits under the line; the state is saved.
    Line,
    /// The user stopped it; the state is saved.
    Interrupted,
}

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Ended {
        match stopped {
            Stopped::Finished => Ended::Finished,
            Stopped::Interrupted => Ended::Interrupted,
            Stopped::Line => Ended::Line,
        }
    }
}

/// Prints an error once, with its hint, and gives the exit code.
pub(crate) fn report(result: anyhow::Result<Ended>) -> ExitCode {
    let error = match result {
        Ok(Ended::Finished) => return ExitCode::SUCCESS,
        Ok(Ended::Line) => return ExitCode::from(3),
        Ok(Ended::Interrupted) => return ExitCode::from(130),
        Err(error) => error,
    };
    let train = error.downcast_ref::<TrainError>();
    // The text of a `TrainError` holds its causes already.
    let text = train.map_or_else(|| format!("{error:#}"), ToString::to_string);
    to_stderr(&format!("error: {text}"));
    if let Some(hint) = train.and_then(TrainError::hint) {
        to_stderr(&format!("hint: {hint}"));
    }
    match train {
        Some(TrainError::Line { .. }) => ExitCode::from(3),
        Some(TrainError::Engine(error)) if error.is_oom() => ExitCode::from(3),
        Some(error) if error.is_users() => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}
