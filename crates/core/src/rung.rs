//! The rungs of the ladder.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One way to need less memory, from the one that costs least to giving up.
///
/// The order of the variants is the order of the ladder. Every rung after [`Rung::Clean`] includes cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// Release cached blocks and run the same work again.
    Clean,
    /// Halve the micro-batch and accumulate gradients; the effective batch stays.
    Split,
    /// Compute the loss in more chunks, so that all logits are never held at once.
    ChunkLoss,
    /// Recompute more activations in the backward pass instead of keeping them.
    Recompute,
    /// Divide the optimizer's state among ranks, so that each holds a part of it.
    Shard,
    /// Keep more in host memory: saved segment inputs, then optimizer state.
    Spill,
    /// Compute in a narrower floating-point type; the only rung that changes more than rounding order.
    Narrow,
    /// Save an exact checkpoint and end the run.
    Stop,
}

impl fmt::Display for Rung {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Clean => "clean",
            Self::Split => "split",
            Self::ChunkLoss => "chunk the loss",
            Self::Recompute => "recompute",
            Self::Shard => "shard",
            Self::Spill => "spill",
            Self::Narrow => "narrow",
            Self::Stop => "stop",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_ladder() {
        use Rung::{ChunkLoss, Clean, Narrow, Recompute, Shard, Spill, Split, Stop};
        assert!([Clean, Split, ChunkLoss, Recompute, Shard, Spill, Narrow, Stop].is_sorted());
        assert_eq!(serde_json::to_string(&ChunkLoss).unwrap(), "\"chunk_loss\"");
    }
}
