//! What the property tests of the guard share.

use std::num::NonZeroU32;

use lowtide_core::{Measures, MicroBatch, Offer};
use proptest::prelude::*;

/// A micro-batch; `samples` is not 0.
pub(crate) fn micro_batch(samples: u32) -> MicroBatch {
    MicroBatch::new(samples).expect("not 0")
}

/// Any mixture of rungs that a user and a workload may offer.
pub(crate) fn offers() -> impl Strategy<Value = Offer> {
    (any::<bool>(), 1..17_u32, 0..4_u32, any::<bool>(), 0..3_u32, any::<bool>()).prop_map(
        |(split, loss_chunks, recompute_levels, shard, spill_levels, narrow)| Offer {
            split,
            loss_chunks: NonZeroU32::new(loss_chunks).expect("not 0"),
            recompute_levels,
            shard,
            spill_levels,
            narrow,
        },
    )
}

/// Measures as a run starts with them.
pub(crate) fn starts() -> impl Strategy<Value = Measures> {
    (1..65_u32, 1..65_u32).prop_map(|(train, eval)| Measures::new(micro_batch(train), micro_batch(eval)))
}
