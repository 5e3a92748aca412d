//! An event as a note in Markdown, for those who look at curves.

use crate::{Event, Phase};

impl Event {
    /// What ran out of memory and what was done about it; other events have no note.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        match self {
            Self::OutOfMemory { step, phase, message, .. } => {
                Some(format!("Memory ran out in {phase} of step {step}.\n\n{message}"))
            }
            Self::RungTaken { step, rung, measures, reason } => {
                let phase = reason.phase().unwrap_or(Phase::Forward);
                Some(format!("Step {step} was tried again after: {rung} ({}).", measures.in_phase(phase)))
            }
            Self::EvaluationFailed { step, stop } => {
                Some(format!("The evaluation after step {step} was left out: {stop}."))
            }
            _ => None,
        }
    }
}
