//! Whether a model trains or is evaluated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a model trains or is evaluated: one flag that all its parts look at.
#[derive(Clone, Debug)]
pub struct Mode(Arc<AtomicBool>);

impl Default for Mode {
    /// Training.
    fn default() -> Mode {
        Mode(Arc::new(AtomicBool::new(true)))
    }
}

impl Mode {
    /// Whether it trains.
    #[must_use]
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Evaluation until the guard is dropped, by unwinding too.
    pub fn evaluate(&self) -> EvaluationScope<'_> {
        self.0.store(false, Ordering::Relaxed);
        EvaluationScope(self)
    }
}

/// Evaluation, until dropped.
#[must_use = "evaluation ends when the guard is dropped"]
#[derive(Debug)]
pub struct EvaluationScope<'a>(&'a Mode);

impl Drop for EvaluationScope<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
