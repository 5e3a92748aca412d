//! Dropout that looks at the mode of its model.

use lowtide_torch::tch::Tensor;
use lowtide_train::Mode;

/// Drops values in training and nothing in evaluation.
#[derive(Clone)]
pub(crate) struct Dropout {
    share: f64,
    mode: Mode,
}

impl Dropout {
    /// Drops `share` of the values while `mode` says that the model trains.
    pub(crate) fn new(share: f64, mode: &Mode) -> Dropout {
        Dropout { share, mode: mode.clone() }
    }

    /// The share that is dropped now.
    pub(crate) fn rate(&self) -> f64 {
        if self.mode.is_training() { self.share } else { 0.0 }
    }

    pub(crate) fn apply(&self, x: Tensor) -> Tensor {
        if self.rate() == 0.0 { x } else { x.dropout(self.share, true) }
    }
}
