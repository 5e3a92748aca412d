//! Kinds of events, for those who list or count them.

use serde::Serialize;

use crate::{CommandOutcome, Ending, Event, Step};

/// What kind of thing happened, besides steps and samples of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A checkpoint was written.
    Saved,
    /// An evaluation ended.
    Evaluated,
    /// Cached blocks were released.
    Cleaned,
    /// An update was left out.
    Skipped,
    /// A micro-batch was tried out.
    Probed,
    /// A larger micro-batch is tried.
    Climbed,
    /// An evaluation was given up.
    EvaluationFailed,
    /// A failure was answered.
    Rung,
    /// Memory would have run out without the reserve.
    Overflowed,
    /// Memory ran out.
    OutOfMemory,
    /// Something that a person should know.
    Note,
    /// The run began or went on.
    Started,
    /// The first micro-batch was chosen.
    Sized,
    /// The run ended, early or not.
    Ended,
}

impl EventKind {
    /// The kind as a noun for several.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Saved => "checkpoints",
            Self::Evaluated => "evaluations",
            Self::Cleaned => "cleanings",
            Self::Skipped => "skipped updates",
            Self::Probed => "tries",
            Self::Climbed => "larger micro-batches",
            Self::EvaluationFailed => "failed evaluations",
            Self::Rung => "retries",
            Self::Overflowed => "uses of the reserve",
            Self::OutOfMemory => "times out of memory",
            Self::Note => "notes",
            Self::Started => "starts",
            Self::Sized => "choices of a micro-batch",
            Self::Ended => "ends",
        }
    }
}

impl Event {
    /// Its kind; committed steps and samples of memory have none.
    #[must_use]
    pub const fn kind(&self) -> Option<EventKind> {
        Some(match self {
            Self::StepDone { .. } | Self::Memory { .. } | Self::CommandMemory { .. } => return None,
            Self::RunStarted { .. } | Self::CommandStarted { start: ..=1, .. } => EventKind::Started,
            Self::Probed { .. } => EventKind::Probed,
            Self::Sized { .. } => EventKind::Sized,
            Self::OutOfMemory { .. } | Self::CommandEnded { outcome: CommandOutcome::OutOfMemory, .. } => {
                EventKind::OutOfMemory
            }
            Self::Overflowed { .. } => EventKind::Overflowed,
            // The end of the run says it.
            Self::CommandEnded { .. } => return None,
            Self::RungTaken { .. } | Self::TileHalved { .. } | Self::CommandStarted { .. } => EventKind::Rung,
            Self::Climbed { .. } => EventKind::Climbed,
            Self::Cleaned { .. } => EventKind::Cleaned,
            Self::Evaluated { .. } => EventKind::Evaluated,
            Self::EvaluationFailed { .. } | Self::MetricMissing { .. } => EventKind::EvaluationFailed,
            Self::Saved { .. } => EventKind::Saved,
            Self::Skipped { .. } => EventKind::Skipped,
            Self::Relocated { .. } | Self::NumericsChanged { .. } | Self::Note { .. } => EventKind::Note,
            Self::StoppedEarly { .. } | Self::Stopped { .. } => EventKind::Ended,
        })
    }

    /// The step it belongs to; what is tried out before training belongs to none.
    #[must_use]
    pub const fn step(&self) -> Option<Step> {
        match self {
            Self::RunStarted { resumed_at: None, .. } => Some(Step::ZERO),
            Self::RunStarted { resumed_at, .. } => *resumed_at,
            Self::Probed { .. } | Self::Sized { .. } | Self::CommandStarted { .. } => None,
            Self::StepDone { step, .. }
            | Self::Memory { step, .. }
            | Self::NumericsChanged { step, .. }
            | Self::OutOfMemory { step, .. }
            | Self::Overflowed { step, .. }
            | Self::RungTaken { step, .. }
            | Self::TileHalved { step, .. }
            | Self::Climbed { step, .. }
            | Self::Cleaned { step, .. }
            | Self::Evaluated { step, .. }
            | Self::EvaluationFailed { step, .. }
            | Self::MetricMissing { step, .. }
            | Self::Saved { step, .. }
            | Self::Skipped { step, .. }
            | Self::Relocated { step, .. }
            | Self::Note { step, .. }
            | Self::CommandMemory { step, .. }
            | Self::CommandEnded { step, .. }
            | Self::StoppedEarly { step, .. }
            | Self::Stopped { step, .. } => Some(*step),
        }
    }

    /// How long it took, where it takes time.
    #[must_use]
    pub const fn seconds(&self) -> f64 {
        match self {
            Self::Probed { seconds, .. }
            | Self::StepDone { seconds, .. }
            | Self::Cleaned { seconds, .. }
            | Self::Overflowed { seconds, .. }
            | Self::Evaluated { seconds, .. }
            | Self::Saved { seconds, .. } => *seconds,
            _ => 0.0,
        }
    }
}

impl Ending {
    /// How a run ended, as one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Line { .. } => "line",
            Self::Error { .. } => "error",
        }
    }
}
