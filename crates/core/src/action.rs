//! What the guard answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Measures, Phase, Rung, Stop};

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an answer of the guard has to be carried out"]
pub enum Action {
    /// Go on as before.
    Continue,
    /// Release cached blocks before the next step; nothing failed, nothing is repeated.
    Clean {
        /// Why.
        reason: Reason,
    },
    /// Release cached blocks, put these measures in force and do the failed work again: the same batch, the same
    /// evaluation or the same checkpoint. After an overflow nothing is done again: they hold from the next step on.
    Retry {
        /// The rung that was taken; never [`Rung::Stop`].
        rung: Rung,
        /// All measures from now on; the same as before for [`Rung::Clean`].
        measures: Measures,
        /// Why.
        reason: Reason,
    },
    /// Put these measures, which have a larger micro-batch, in force from the next step on.
    Climb {
        /// All measures from now on.
        measures: Measures,
        /// Why.
        reason: Reason,
    },
    /// Leave this evaluation out and go on training: its figure is missing, and the next one is tried anew.
    ///
    /// The answer to failures in [`Phase::Eval`] only.
    GiveUp(Stop),
    /// Save the last committed state and end the run. Every later signal gets this answer again.
    Stop(Stop),
}

/// Why the guard answers as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It failed for the first time, so cleaning may be enough.
    FirstFailure {
        /// Where it failed.
        phase: Phase,
    },
    /// It failed again although it had been cleaned.
    StillFailing {
        /// Where it failed.
        phase: Phase,
    },
    /// The present measures have failed twice and are not tried again.
    FailedTwice {
        /// Where it failed.
        phase: Phase,
    },
    /// Cleaning helped for the moment but is needed too often.
    CleaningWornOut {
        /// Where it failed.
        phase: Phase,
    },
    /// It needed more than the device has, and got it from the reserve.
    Overflowed {
        /// Where it did.
        phase: Phase,
    },
    /// The allocator had to free its cache and ask again.
    RetriesRose,
    /// There is room for a larger micro-batch.
    Room {
        /// The peak to expect with it.
        forecast: Bytes,
        /// The line it has to stay under, if there is one.
        limit: Option<Bytes>,
    },
}

impl Reason {
    /// Where memory ran out, if that is the reason.
    #[must_use]
    pub const fn phase(&self) -> Option<Phase> {
        match self {
            Self::FirstFailure { phase }
            | Self::StillFailing { phase }
            | Self::FailedTwice { phase }
            | Self::CleaningWornOut { phase }
            | Self::Overflowed { phase } => Some(*phase),
            Self::RetriesRose | Self::Room { .. } => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstFailure { phase } => write!(formatter, "memory ran out in {phase}; cleaning may be enough"),
            Self::StillFailing { phase } => {
                write!(formatter, "memory ran out in {phase} again after cleaning")
            }
            Self::FailedTwice { phase } => write!(formatter, "memory ran out in {phase} twice with these measures"),
            Self::CleaningWornOut { phase } => {
                write!(formatter, "memory ran out in {phase}, and cleaning has been needed too often")
            }
            Self::Overflowed { phase } => write!(formatter, "{phase} needed more than the device has"),
            Self::RetriesRose => formatter.write_str("the allocator had to free its cache to serve a request"),
            Self::Room { forecast, limit: Some(limit) } => {
                write!(formatter, "there is room: {forecast} expected, the limit is {limit}")
            }
            Self::Room { forecast, limit: None } => {
                write!(formatter, "there is room: {forecast} expected, no limit is set")
            }
        }
    }
}
