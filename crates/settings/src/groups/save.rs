//! When checkpoints are written and how many stay.

use serde::{Deserialize, Serialize};

use super::violation::{Violation, at_least_one, every};

/// When checkpoints are written and how many stay: the keys under `save`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SaveSettings {
    /// Steps from one checkpoint to the next, 1 or more; null is only where the run starts and ends. Default: 100.
    pub every: Option<u64>,
    /// Newest checkpoints that are kept, 1 or more. Default: 2.
    pub keep: u32,
}

impl Default for SaveSettings {
    fn default() -> Self {
        Self { every: Some(100), keep: 2 }
    }
}

impl SaveSettings {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        every("every", self.every)?;
        at_least_one("keep", self.keep.into())
    }
}
