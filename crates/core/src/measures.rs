//! What is done at present to need less memory.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{MicroBatch, Phase};

/// Everything that a run does to stay under its line, as one value.
///
/// The guard hands out a whole new value each time, so that the caller sets the state and never works out a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Measures {
    /// Samples that training computes at once.
    pub micro_batch: MicroBatch,
    /// Pieces in which training computes the loss head; 1 is all at once.
    pub loss_chunks: NonZeroU32,
    /// How much is recomputed: 0 is nothing, the highest level is as much as the workload offers.
    pub recompute: u32,
    /// Whether each of several ranks holds a part of the optimizer's state instead of all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shard: bool,
    /// How much is kept in host memory: 0 is nothing, the highest level is as much as the workload offers.
    pub spill: u32,
    /// Whether the narrower floating-point type is used.
    pub narrow: bool,
    /// Samples that evaluation computes at once.
    pub eval_micro_batch: MicroBatch,
    /// Pieces in which evaluation computes the loss head; 1 is all at once.
    pub eval_loss_chunks: NonZeroU32,
}

impl Measures {
    /// These micro-batches, and nothing else done.
    pub const fn new(micro_batch: MicroBatch, eval_micro_batch: MicroBatch) -> Self {
        Self {
            micro_batch,
            loss_chunks: NonZeroU32::MIN,
            recompute: 0,
            shard: false,
            spill: 0,
            narrow: false,
            eval_micro_batch,
            eval_loss_chunks: NonZeroU32::MIN,
        }
    }

    /// The same with another training micro-batch.
    #[must_use]
    pub const fn with_micro_batch(self, micro_batch: MicroBatch) -> Self {
        Self { micro_batch, ..self }
    }

    /// Those that count in a phase, in words: evaluation has its own.
    #[must_use]
    pub fn in_phase(&self, phase: Phase) -> String {
        if phase == Phase::Eval {
            return format!("evaluation micro-batch {}{}", self.eval_micro_batch, in_chunks(self.eval_loss_chunks));
        }
        let mut text = format!("micro-batch {}{}", self.micro_batch, in_chunks(self.loss_chunks));
        text.push_str(&at_level("recompute", self.recompute));
        if self.shard {
            text.push_str(", sharded optimizer state");
        }
        text.push_str(&at_level("spill", self.spill));
        if self.narrow {
            text.push_str(", narrow precision");
        }
        text
    }
}

fn at_level(what: &str, level: u32) -> String {
    if level > 0 { format!(", {what} level {level}") } else { String::new() }
}

fn in_chunks(chunks: NonZeroU32) -> String {
    if chunks.get() > 1 { format!(", loss in {chunks} chunks") } else { String::new() }
}

impl fmt::Display for Measures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; {}", self.in_phase(Phase::Forward), self.in_phase(Phase::Eval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_only_what_is_done() {
        let mut measures = Measures::new(MicroBatch::new(16).unwrap(), MicroBatch::new(8).unwrap());
        assert_eq!(measures.to_string(), "micro-batch 16; evaluation micro-batch 8");
        measures.loss_chunks = NonZeroU32::new(4).unwrap();
        measures.recompute = 2;
        measures.shard = true;
        measures.spill = 1;
        measures.narrow = true;
        measures.eval_loss_chunks = NonZeroU32::new(2).unwrap();
        let all = "micro-batch 16, loss in 4 chunks, recompute level 2, sharded optimizer state, spill level 1, \
                   narrow precision; evaluation micro-batch 8, loss in 2 chunks";
        assert_eq!(measures.to_string(), all);
        let parts = [measures.in_phase(Phase::Forward), measures.in_phase(Phase::Eval)];
        assert_eq!(parts.join("; "), all);
    }
}
