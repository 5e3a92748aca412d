//! Why the guard gives up, and what it tried before.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Measures, Phase, Rung, Step};

/// The guard's last answer: why it gives up, and what it tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The step that could not be done.
    pub step: Step,
    /// What it was doing at the last failure.
    pub phase: Phase,
    /// Why the guard gives up.
    pub cause: StopCause,
    /// The measures that failed last.
    pub measures: Measures,
    /// What was tried for this step, in order.
    pub tried: Vec<RungAttempt>,
}

/// Why the guard gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopCause {
    /// The user wants no other try.
    RecoveryOff,
    /// Frames are evaluated in tiles of a fixed size, or of the least, and one does not fit.
    TileTooLarge {
        /// Pixels along each side.
        tile: u32,
        /// The next smaller one, where there is one.
        smaller: Option<u32>,
    },
    /// Every rung that is allowed and could help was taken.
    LadderExhausted,
    /// One step failed too often.
    TooManyFailuresInStep {
        /// How many were allowed.
        limit: u32,
    },
    /// The run failed too often.
    TooManyFailuresInRun {
        /// How many were allowed.
        limit: u32,
    },
    /// Too many failures came with too few committed steps between them.
    NoProgress {
        /// The failures looked at.
        failures: u32,
        /// The steps committed in that time.
        committed: u64,
    },
}

/// One answer that did not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RungAttempt {
    /// Where the failure was that it answered.
    pub phase: Phase,
    /// The rung that was taken.
    pub rung: Rung,
    /// The measures in force after it.
    pub measures: Measures,
}

impl fmt::Display for StopCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecoveryOff => formatter.write_str("recovery is off"),
            Self::TileTooLarge { tile, smaller: Some(smaller) } => write!(
                formatter,
                "a tile of {tile} x {tile} pixels does not fit: the next smaller is eval.tile={smaller}, and \
                 eval.tile=auto finds the largest that fits"
            ),
            Self::TileTooLarge { tile, smaller: None } => {
                write!(formatter, "a tile of {tile} x {tile} pixels, the smallest there is, does not fit")
            }
            Self::LadderExhausted => formatter.write_str("nothing that is allowed is left to try"),
            Self::TooManyFailuresInStep { limit } => {
                write!(formatter, "the step failed more than the {limit} times allowed")
            }
            Self::TooManyFailuresInRun { limit } => {
                write!(formatter, "the run failed more than the {limit} times allowed")
            }
            Self::NoProgress { failures, committed } => {
                write!(formatter, "no progress: {failures} failures while {committed} steps were done")
            }
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, phase, cause, .. } = self;
        write!(formatter, "memory ran out in {phase} of step {step}, and {cause}")
    }
}
