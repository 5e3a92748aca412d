//! How the evaluations of a run have gone, and when that is a reason to end it early.

use serde::{Deserialize, Serialize};

/// The evaluations that the settings ask for between steps, over all starts of a run.
///
/// The one that a finished run is given at its last step is left out where no other falls on that step: a run that was
/// to be longer from the start would not have had it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trend {
    /// The lowest loss.
    pub(crate) best: Option<f64>,
    /// Evaluations in a row, up to the last one, that were not better.
    pub(crate) not_better: u64,
}

impl Trend {
    /// Takes in an evaluation. A loss that is no finite number is never better.
    pub(crate) fn note(&mut self, loss: f64) {
        if loss.is_finite() && self.best.is_none_or(|best| loss < best) {
            (self.best, self.not_better) = (Some(loss), 0);
        } else {
            self.not_better += 1;
        }
    }

    /// Whether it has not got better for as long as one was willing to wait.
    pub(crate) fn outlasts(&self, patience: Option<u64>) -> bool {
        patience.is_some_and(|patience| self.not_better >= patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_begins_anew_with_every_better_loss() {
        let mut trend = Trend::default();
        let losses = [(3.0, 0), (3.0, 1), (f64::NAN, 2), (2.0, 0), (2.5, 1), (f64::NEG_INFINITY, 2), (2.1, 3)];
        for (loss, not_better) in losses {
            trend.note(loss);
            assert_eq!(trend.not_better, not_better, "after {loss}");
        }
        assert_eq!(trend.best, Some(2.0));
        assert!(trend.outlasts(Some(3)) && !trend.outlasts(Some(4)) && !trend.outlasts(None));
    }

    #[test]
    fn no_loss_at_all_is_not_better() {
        let mut trend = Trend::default();
        trend.note(f64::NAN);
        assert_eq!((trend.best, trend.not_better), (None, 1));
    }
}
