//! How long and in what pieces a run trains.

use serde::{Deserialize, Serialize};

use super::violation::{Violation, at_least_one, ensure, every};
use crate::{Graphs, MicroBatchChoice, Precision, Recompute};

/// How long and in what pieces a run trains: the keys under `train`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSettings {
    /// Optimizer steps, 1 or more. Default: 300.
    pub steps: u64,
    /// Passes over the training data, 1 or more, for workloads that know how much that is: `steps` follows from it, and
    /// so do evaluations and checkpoints, once a pass, where nothing is said of them. Default: null.
    pub epochs: Option<u64>,
    /// Samples per step, 1 or more, whatever the micro-batch is. Default: 32.
    pub batch: u32,
    /// Samples computed at once, up to `batch`. Default: auto.
    pub micro_batch: MicroBatchChoice,
    /// Floating-point type of forward and backward. Default: auto.
    pub precision: Precision,
    /// Whether activations are computed again in backward. Default: auto.
    pub recompute: Recompute,
    /// Whether steps on a GPU are replayed from CUDA graphs. Default: auto.
    pub graphs: Graphs,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self {
            steps: 300,
            epochs: None,
            batch: 32,
            micro_batch: MicroBatchChoice::Auto,
            precision: Precision::Auto,
            recompute: Recompute::Auto,
            graphs: Graphs::Auto,
        }
    }
}

impl TrainSettings {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        at_least_one("steps", self.steps)?;
        every("epochs", self.epochs)?;
        at_least_one("batch", self.batch.into())?;
        let MicroBatchChoice::Samples(samples) = self.micro_batch else {
            return Ok(());
        };
        let allowed = format!("auto or a whole number from 1 to train.batch ({})", self.batch);
        ensure(samples.get() <= self.batch, "micro_batch", &allowed, samples)
    }
}
