//! When and on how much a run is evaluated.

use serde::{Deserialize, Serialize};

use crate::wrong::{Wrong, at_least_one, every};

/// When and on how much a run is evaluated: the keys under `eval`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalSettings {
    /// Steps from one evaluation to the next, 1 or more; null is never. Default: 100.
    pub every: Option<u64>,
    /// Batches per evaluation, 1 or more. Default: 4.
    pub batches: u64,
    /// Whether the run is evaluated before its first step too. Default: false.
    pub at_start: bool,
}

impl Default for EvalSettings {
    fn default() -> Self {
        Self { every: Some(100), batches: 4, at_start: false }
    }
}

impl EvalSettings {
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        every("every", self.every)?;
        at_least_one("batches", self.batches)
    }
}
