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
    /// Something failed that was told of already, and the rest was done.
    Failed,
}

impl Ended {
    /// How two runs ended together: as the one that there is more to do about.
    pub(crate) fn and(self, other: Ended) -> Ended {
        let order = [Ended::Interrupted, Ended::Line, Ended::Failed];
        order.into_iter().find(|ended| [self, other].contains(ended)).unwrap_or(Ended::Finished)
    }
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
        Ok(Ended::Failed) => return ExitCode::FAILURE,
        Err(error) => error,
    };
    let train = error.downcast_ref::<TrainError>();
    match train {
        Some(error) => tell(error),
        None => to_stderr(&format!("error: {error:#}")),
    }
    match train {
        Some(TrainError::Line { .. }) => ExitCode::from(3),
        Some(TrainError::Engine(error)) if error.is_oom() => ExitCode::from(3),
        Some(error) if error.is_users() => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// Prints an error, whose text holds its causes already, and its hint.
pub(crate) fn tell(error: &TrainError) {
    to_stderr(&format!("error: {error}"));
    if let Some(hint) = error.hint() {
        to_stderr(&format!("hint: {hint}"));
    }
}
