//! The failures of one step.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Phase, RungAttempt, Step};

/// The kinds of work that are cleaned for, and fail, independently of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    Compute,
    Optimizer,
    Eval,
    Checkpoint,
}

impl Work {
    /// The kind of work that a phase does.
    pub(crate) const fn of(phase: Phase) -> Self {
        match phase {
            Phase::Forward | Phase::Backward => Self::Compute,
            Phase::Optimizer => Self::Optimizer,
            Phase::Eval => Self::Eval,
            Phase::Load | Phase::Save => Self::Checkpoint,
        }
    }
}

/// What failed and what was tried since a step began, until it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Episode {
    pub(crate) step: Step,
    pub(crate) failures: u32,
    pub(crate) checkpoint_failures: u32,
    pub(crate) cleaned: BTreeSet<Work>,
    pub(crate) tried: Vec<RungAttempt>,
}

impl Episode {
    /// Nothing has failed yet.
    pub(crate) fn at(step: Step) -> Self {
        Self { step, ..Self::default() }
    }
}
