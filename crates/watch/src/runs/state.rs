//! Whether a run is under way.

use lowtide_core::span;
use serde::Serialize;

/// Whether a run is under way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// Nothing has been written yet.
    Waiting,
    /// A process trains, or did a moment ago.
    Running,
    /// It said that it ended.
    Ended {
        /// `finished`, `interrupted`, `line` or `error`.
        how: &'static str,
    },
    /// It never said that it ended, but no process holds its folder.
    Gone {
        /// Seconds since it last wrote.
        quiet: u64,
    },
}

impl RunState {
    /// It in one sentence.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Waiting => "Waiting for the first event.".to_owned(),
            Self::Running => "The run is under way.".to_owned(),
            Self::Ended { how: "finished" } => "The run has finished.".to_owned(),
            Self::Ended { how: "interrupted" } => "The run was interrupted and can be resumed.".to_owned(),
            Self::Ended { how: "line" } => "The run stopped: nothing fits under the memory limit.".to_owned(),
            Self::Ended { .. } => "The run ended with an error.".to_owned(),
            Self::Gone { quiet } => {
                format!(
                    "The run seems to have been killed: it never said that it ended, and has been silent for {}.",
                    span(*quiet)
                )
            }
        }
    }

    /// It as one word, for other programs.
    #[must_use]
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ended { how } => how,
            Self::Gone { .. } => "killed",
        }
    }
}
