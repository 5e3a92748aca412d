//! The failures that the guard remembers: those of one step, and those held against the present measures.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{MicroBatch, Phase, RungAttempt, Step};

/// So many failures, and the measures are not taken again.
const OUT: u32 = 2;

/// The kinds of work that are cleaned for, and fail, independently of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    Compute,
    Optimizer,
    Eval,
    Checkpoint,
}

impl Work {
    /// The kind of work that a phase does.
    pub(crate) const fn of(phase: Phase) -> Self {
        match phase {
            Phase::Forward | Phase::Backward => Self::Compute,
            Phase::Optimizer => Self::Optimizer,
            Phase::Eval => Self::Eval,
            Phase::Load | Phase::Save => Self::Checkpoint,
        }
    }
}

/// What failed and what was tried since a step began, until it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Episode {
    pub(crate) step: Step,
    pub(crate) failures: u32,
    pub(crate) checkpoint_failures: u32,
    pub(crate) cleaned: BTreeSet<Work>,
    pub(crate) tried: Vec<RungAttempt>,
}

impl Episode {
    /// Nothing has failed yet.
    pub(crate) fn at(step: Step) -> Self {
        Self { step, ..Self::default() }
    }
}

/// Counts failures of measures, until success forgives them.
///
/// Training micro-batches are counted one by one under the other training measures as they are now. Those only ever grow,
/// so the counts are dropped when one of them changes: the old combination cannot come back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Strikes {
    compute: BTreeMap<MicroBatch, u32>,
    optimizer: u32,
    eval: u32,
}

impl Strikes {
    /// Counts a failure of forward or backward; whether these measures are out now.
    pub(crate) fn compute_failed(&mut self, micro_batch: MicroBatch) -> bool {
        let times = self.compute.entry(micro_batch).or_default();
        *times = times.saturating_add(1);
        *times >= OUT
    }

    /// Counts a failure of the optimizer; whether these measures are out now.
    pub(crate) fn optimizer_failed(&mut self) -> bool {
        self.optimizer = self.optimizer.saturating_add(1);
        self.optimizer >= OUT
    }

    /// Counts a failure of evaluation; whether its measures are out now.
    pub(crate) fn eval_failed(&mut self) -> bool {
        self.eval = self.eval.saturating_add(1);
        self.eval >= OUT
    }

    /// A step was committed with that micro-batch: its failures were passing ones.
    pub(crate) fn committed(&mut self, micro_batch: MicroBatch) {
        self.compute.remove(&micro_batch);
        self.optimizer = 0;
    }

    /// An evaluation ended well, or its measures changed.
    pub(crate) fn forgive_eval(&mut self) {
        self.eval = 0;
    }

    /// The micro-batch is left for a smaller one and counts as out.
    pub(crate) fn rule_out(&mut self, micro_batch: MicroBatch) {
        self.compute.insert(micro_batch, OUT);
        self.optimizer = 0;
    }

    /// Training measures other than the micro-batch changed.
    pub(crate) fn measures_changed(&mut self) {
        self.compute.clear();
        self.optimizer = 0;
    }

    /// Whether that micro-batch, or a smaller one, is out: a larger one needs no less memory.
    pub(crate) fn is_out(&self, micro_batch: MicroBatch) -> bool {
        self.compute.range(..=micro_batch).any(|(_, times)| *times >= OUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_put_a_micro_batch_and_all_larger_ones_out() {
        let micro_batch = |samples| MicroBatch::new(samples).unwrap();
        let mut strikes = Strikes::default();
        assert!(!strikes.compute_failed(micro_batch(8)));
        assert!(!strikes.is_out(micro_batch(8)));
        assert!(strikes.compute_failed(micro_batch(8)));
        assert!(strikes.is_out(micro_batch(8)));
        assert!(strikes.is_out(micro_batch(16)));
        assert!(!strikes.is_out(micro_batch(4)));
        strikes.measures_changed();
        assert!(!strikes.is_out(micro_batch(8)));
    }

    #[test]
    fn success_forgives() {
        let mut strikes = Strikes::default();
        assert!(!strikes.compute_failed(MicroBatch::ONE) && !strikes.optimizer_failed() && !strikes.eval_failed());
        strikes.committed(MicroBatch::ONE);
        strikes.forgive_eval();
        assert!(!strikes.compute_failed(MicroBatch::ONE) && !strikes.optimizer_failed() && !strikes.eval_failed());
        assert!(strikes.compute_failed(MicroBatch::ONE) && strikes.optimizer_failed() && strikes.eval_failed());
    }
}
