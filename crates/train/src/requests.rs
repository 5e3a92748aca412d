//! What is asked of a run from outside while it trains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags that a signal handler or another thread may set.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// End the run after the step under way; its state is saved.
    pub stop: Arc<AtomicBool>,
    /// Save after the step under way and go on. The run takes it back.
    pub save: Arc<AtomicBool>,
}

impl Requests {
    /// Whether somebody asked the run to end.
    #[must_use]
    pub fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn take_save(&self) -> bool {
        self.save.swap(false, Ordering::Relaxed)
    }
}
