//! How several ranks train together.

use serde::{Deserialize, Serialize};

use super::violation::{Violation, ensure};
use crate::{Backend, Shard};

/// How several ranks train together: the keys under `ranks`. Of no account where there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RanksSettings {
    /// Seconds, from 1 to 86400, that ranks wait for one of them, at the start and in each step. Default: 600.
    pub timeout: u64,
    /// How tensors of ranks are exchanged. Default: `auto`.
    pub backend: Backend,
    /// Whether ranks divide the optimizer's state among them. Default: `auto`.
    pub shard: Shard,
    /// Whether ranks with more memory compute more samples of a step. Default: false, all compute as many.
    pub uneven: bool,
}

impl Default for RanksSettings {
    fn default() -> Self {
        Self { timeout: 600, backend: Backend::Auto, shard: Shard::Auto, uneven: false }
    }
}

impl RanksSettings {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        ensure((1..=86_400).contains(&self.timeout), "timeout", "a whole number from 1 to 86400", self.timeout)
    }
}
