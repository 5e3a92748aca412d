//! What a run tells of memory while it goes on.

use serde::{Deserialize, Serialize};

use super::violation::{Violation, every};

/// What a run tells of memory while it goes on: the keys under `watch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchSettings {
    /// Seconds, 1 or more, from one sample of memory in `events.jsonl` to the next, taken between two steps; null is
    /// only after evaluations. Default: 10.
    pub seconds: Option<u64>,
    /// Steps, 1 or more, from one line about memory in the log to the next; null is only after evaluations. Default:
    /// null.
    pub log_every: Option<u64>,
    /// Whether event files for TensorBoard are written, into the folder `tensorboard` of the run. Default: true.
    pub tensorboard: bool,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self { seconds: Some(10), log_every: None, tensorboard: true }
    }
}

impl WatchSettings {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        every("seconds", self.seconds)?;
        every("log_every", self.log_every)
    }
}
