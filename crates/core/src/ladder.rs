//! What the guard may do, in which order, and how long it goes on trying.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{Measures, Percent, Rung};

/// The rungs a run may take, and the limits it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ladder {
    /// The rungs that are there.
    pub offer: Offer,
    /// How often to try.
    pub limits: Limits,
}

/// What the user allows and the workload can do; cleaning and stopping are always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Offer {
    /// Whether training batches may be split. Off for a model with batch statistics, unless the user allows it: splitting
    /// changes what BatchNorm sees. Evaluation may always be split, since it uses the stored statistics. Default true.
    pub split: bool,
    /// The most chunks in which the workload can compute its loss; 1 means that it cannot. Default 1.
    pub loss_chunks: NonZeroU32,
    /// How many levels of recomputing the workload has; 0 means none. Default 0.
    pub recompute_levels: u32,
    /// Whether several ranks may divide the optimizer's state among them. Default false.
    pub shard: bool,
    /// How many levels of spilling to the host the workload has; 0 means none. Default 0.
    pub spill_levels: u32,
    /// Whether the user allows narrower precision. Default false.
    pub narrow: bool,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            split: true,
            loss_chunks: NonZeroU32::MIN,
            recompute_levels: 0,
            shard: false,
            spill_levels: 0,
            narrow: false,
        }
    }
}

/// How often the guard tries again, and when it climbs back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Whether a failure is answered with another try at all. Default true.
    pub recover: bool,
    /// Failures of one step that are answered with another try; one more stops the run. Default 64.
    pub failures_per_step: u32,
    /// Failures of the whole run that are answered with another try; one more stops the run. Default 1,000.
    pub failures_per_run: u32,
    /// This many failures, with fewer steps than that committed between the first and the last of them, are no progress
    /// and stop the run. 0 switches the check off. Default 128.
    pub no_progress_failures: u32,
    /// Tries of one checkpoint (saving or loading) after its first failure. Default 3.
    pub checkpoint_retries: u32,
    /// Failed steps in a stretch that cleaning alone may answer, before cleaning counts as worn out and the next rung is
    /// taken at once. A stretch ends after `climb_after` steps without a failure. Default 4.
    pub cleans: u32,
    /// Steps without failure or warning before a larger micro-batch is tried. 0 never climbs, and a stretch never ends.
    /// Default 50.
    pub climb_after: u32,
    /// Share of the line that must stay free by the forecast for a larger micro-batch to be tried. Default 5%.
    pub climb_margin: Percent,
    /// Committed steps that must pass between two cleanings for rising allocation retries. Default 20.
    pub warning_rest: u32,
}

impl Default for Limits {
    fn default() -> Self {
        const FIVE: Percent = Percent::from_hundredths(500).expect("5 % is in range");
        Self {
            recover: true,
            failures_per_step: 64,
            failures_per_run: 1000,
            no_progress_failures: 128,
            checkpoint_retries: 3,
            cleans: 4,
            climb_after: 50,
            climb_margin: FIVE,
            warning_rest: 20,
        }
    }
}

impl Ladder {
    /// One rung down for a forward or backward pass: the first of split, chunk the loss, recompute, shard, spill and narrow that
    /// still has something to give. `None` where nothing is left.
    pub(crate) fn below_compute(&self, now: Measures) -> Option<(Rung, Measures)> {
        self.split(now)
            .or_else(|| self.chunk_loss(now))
            .or_else(|| self.recompute(now))
            .or_else(|| self.shard(now))
            .or_else(|| self.spill(now))
            .or_else(|| self.narrow(now))
    }

    /// One rung down for the optimizer: shard, then spill. Its memory is the optimizer's state, which no other rungs make smaller.
    pub(crate) fn below_optimizer(&self, now: Measures) -> Option<(Rung, Measures)> {
        self.shard(now).or_else(|| self.spill(now))
    }

    /// One rung down for evaluation: its own micro-batch, then its own loss chunks. Training's measures stay.
    pub(crate) fn below_eval(&self, now: Measures) -> Option<(Rung, Measures)> {
        if let Some(eval_micro_batch) = now.eval_micro_batch.halved() {
            return Some((Rung::Split, Measures { eval_micro_batch, ..now }));
        }
        let eval_loss_chunks = more_chunks(now.eval_loss_chunks, self.offer.loss_chunks)?;
        Some((Rung::ChunkLoss, Measures { eval_loss_chunks, ..now }))
    }

    fn split(&self, now: Measures) -> Option<(Rung, Measures)> {
        let micro_batch = now.micro_batch.halved().filter(|_| self.offer.split)?;
        Some((Rung::Split, now.with_micro_batch(micro_batch)))
    }

    fn chunk_loss(&self, now: Measures) -> Option<(Rung, Measures)> {
        let loss_chunks = more_chunks(now.loss_chunks, self.offer.loss_chunks)?;
        Some((Rung::ChunkLoss, Measures { loss_chunks, ..now }))
    }

    fn recompute(&self, now: Measures) -> Option<(Rung, Measures)> {
        let recompute = one_more(now.recompute, self.offer.recompute_levels)?;
        Some((Rung::Recompute, Measures { recompute, ..now }))
    }

    fn shard(&self, now: Measures) -> Option<(Rung, Measures)> {
        (self.offer.shard && !now.shard).then_some((Rung::Shard, Measures { shard: true, ..now }))
    }

    fn spill(&self, now: Measures) -> Option<(Rung, Measures)> {
        let spill = one_more(now.spill, self.offer.spill_levels)?;
        Some((Rung::Spill, Measures { spill, ..now }))
    }

    fn narrow(&self, now: Measures) -> Option<(Rung, Measures)> {
        (self.offer.narrow && !now.narrow).then_some((Rung::Narrow, Measures { narrow: true, ..now }))
    }
}

/// Twice as many chunks, at most `most`.
fn more_chunks(now: NonZeroU32, most: NonZeroU32) -> Option<NonZeroU32> {
    (now < most).then(|| now.saturating_add(now.get()).min(most))
}

/// The next level, if there is one.
fn one_more(now: u32, levels: u32) -> Option<u32> {
    (now < levels).then(|| now.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MicroBatch;

    type Below = fn(&Ladder, Measures) -> Option<(Rung, Measures)>;

    fn start() -> Measures {
        Measures::new(MicroBatch::new(4).unwrap(), MicroBatch::new(2).unwrap())
    }

    /// Walks down to the end and compares the rungs with `expect`.
    #[track_caller]
    fn check(offer: Offer, below: Below, expect: &[Rung]) -> Measures {
        let ladder = Ladder { offer, ..Ladder::default() };
        let mut measures = start();
        let mut taken = Vec::new();
        while let Some((rung, next)) = below(&ladder, measures) {
            taken.push(rung);
            measures = next;
        }
        assert_eq!(taken, expect);
        measures
    }

    fn everything() -> Offer {
        let loss_chunks = NonZeroU32::new(5).unwrap();
        Offer { split: true, loss_chunks, recompute_levels: 2, shard: true, spill_levels: 1, narrow: true }
    }

    #[test]
    fn walks_down_in_order() {
        use Rung::{ChunkLoss, Narrow, Recompute, Shard, Spill, Split};
        let whole = [Split, Split, ChunkLoss, ChunkLoss, ChunkLoss, Recompute, Recompute, Shard, Spill, Narrow];
        let end = check(everything(), Ladder::below_compute, &whole);
        assert_eq!(
            end.to_string(),
            "micro-batch 1, loss in 5 chunks, recompute level 2, sharded optimizer state, spill level 1, narrow precision; \
             evaluation micro-batch 2"
        );
        check(Offer { split: false, narrow: false, ..everything() }, Ladder::below_compute, &whole[2..9]);
        check(Offer::default(), Ladder::below_compute, &[Split, Split]);
    }

    #[test]
    fn the_optimizer_only_shards_and_spills_and_evaluation_keeps_to_itself() {
        check(everything(), Ladder::below_optimizer, &[Rung::Shard, Rung::Spill]);
        let end = check(
            Offer { split: false, ..everything() },
            Ladder::below_eval,
            &[Rung::Split, Rung::ChunkLoss, Rung::ChunkLoss, Rung::ChunkLoss],
        );
        assert_eq!(end.to_string(), "micro-batch 4; evaluation micro-batch 1, loss in 5 chunks");
    }

    #[test]
    fn missing_keys_are_defaults_and_unknown_ones_are_refused() {
        assert_eq!(serde_json::from_str::<Limits>("{}").unwrap(), Limits::default());
        let limits: Limits = serde_json::from_str(r#"{"climb_margin": "2.5%"}"#).unwrap();
        assert_eq!(limits.climb_margin.hundredths(), 250);
        assert!(serde_json::from_str::<Limits>(r#"{"climb_afer": 1}"#).is_err());
    }
}
