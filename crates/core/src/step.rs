//! The number of a training step.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a training step, counted from 1.
///
/// One step is one optimizer update on one effective batch. [`Step::ZERO`] stands for the state before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u64);

impl Step {
    /// Before the first step.
    pub const ZERO: Self = Self(0);

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The step after this one; the last representable step is its own successor.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
