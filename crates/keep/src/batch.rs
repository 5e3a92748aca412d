//! The batch of a step, and the smaller pieces in which it can be computed.

use std::fmt;

use lowtide_core::divisors;
use serde::{Deserialize, Serialize};

/// A batch as training scripts have it: so many samples at once, so many times before a step of the optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSplit {
    /// Samples computed at once.
    pub micro: u64,
    /// Micro-batches before a step of the optimizer.
    pub accum: u64,
}

/// Which number of a [`BatchSplit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchPart {
    /// Samples computed at once.
    Micro,
    /// Micro-batches before a step of the optimizer.
    Accum,
}

impl BatchPart {
    /// Its place in a template.
    pub(crate) const fn place(self) -> &'static str {
        match self {
            Self::Micro => "{micro}",
            Self::Accum => "{accum}",
        }
    }
}

/// What may become of the samples of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EffectiveBatch {
    /// They stay as many, by more accumulation.
    #[default]
    Kept,
    /// They may get fewer, where nothing accumulates gradients: inference, evaluation, or who does not mind.
    MayShrink,
}

/// More than any batch has, in samples or tokens.
const LARGEST: u64 = 1 << 32;

impl BatchSplit {
    /// A batch; `None` where a number is 0 or the product larger than any batch.
    #[must_use]
    pub fn new(micro: u64, accum: u64) -> Option<Self> {
        let effective = micro.checked_mul(accum)?;
        (1..=LARGEST).contains(&effective).then_some(Self { micro, accum })
    }

    /// One of its numbers.
    #[must_use]
    pub const fn part(self, part: BatchPart) -> u64 {
        match part {
            BatchPart::Micro => self.micro,
            BatchPart::Accum => self.accum,
        }
    }

    /// The samples of a step, which every rung keeps.
    #[must_use]
    pub fn effective(self) -> u64 {
        self.micro * self.accum
    }

    /// The batch itself, then each rung below it: the micro-batch at most half of the one before, the effective batch
    /// the same.
    ///
    /// Only divisors of the effective batch are taken, so that the product is exact. Accumulation stays a multiple of
    /// `group`, the number of processes that share it out, where it is one to begin with.
    #[must_use]
    pub fn rungs(self, group: u64) -> Vec<Self> {
        self.rungs_of(group, |_| true)
    }

    /// The same of those that are taken alone.
    pub(crate) fn rungs_of(self, group: u64, is_taken: impl Fn(Self) -> bool) -> Vec<Self> {
        let effective = self.effective();
        let group = if group > 0 && self.accum.is_multiple_of(group) { group } else { 1 };
        let mut rungs = vec![self];
        let mut micro = self.micro;
        for lower in divisors(effective / group).into_iter().rev() {
            let rung = Self { micro: lower, accum: effective / lower };
            if lower <= micro / 2 && is_taken(rung) {
                micro = lower;
                rungs.push(rung);
            }
        }
        rungs
    }

    /// The batch itself, then each smaller one, half of the one before, with as much accumulation as before.
    #[must_use]
    pub fn smaller(self) -> Vec<Self> {
        let halves = std::iter::successors(Some(self.micro), |micro| Some(micro / 2).filter(|half| *half > 0));
        halves.map(|micro| Self { micro, ..self }).collect()
    }
}

impl fmt::Display for BatchSplit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} x {}", self.micro, self.accum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(micro: u64, accum: u64, group: u64) -> String {
        let rungs = BatchSplit { micro, accum }.rungs(group);
        rungs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn each_rung_is_half_or_less() {
        let cases = [
            (64, 1, 1, "64 x 1, 32 x 2, 16 x 4, 8 x 8, 4 x 16, 2 x 32, 1 x 64"),
            (12, 5, 1, "12 x 5, 6 x 10, 3 x 20, 1 x 60"),
            (7, 1, 1, "7 x 1, 1 x 7"),
            (1, 32, 1, "1 x 32"),
            // nanoGPT's own: 40 for 8 processes.
            (12, 40, 8, "12 x 40, 6 x 80, 3 x 160, 1 x 480"),
            // 5 is no multiple of 2 to begin with: such a script does not share it out.
            (4, 5, 2, "4 x 5, 2 x 10, 1 x 20"),
            // 8 x 3 of 3 processes: 4 x 6, 2 x 12 and 1 x 24 are multiples of 3.
            (8, 3, 3, "8 x 3, 4 x 6, 2 x 12, 1 x 24"),
            (6, 4, 4, "6 x 4, 3 x 8, 1 x 24"),
        ];
        for (micro, accum, group, expected) in cases {
            assert_eq!(told(micro, accum, group), expected);
        }
    }

    #[test]
    fn a_batch_that_may_shrink() {
        let told = |batch: BatchSplit| batch.smaller().iter().map(|it| it.micro).collect::<Vec<_>>();
        assert_eq!(told(BatchSplit { micro: 100, accum: 1 }), [100, 50, 25, 12, 6, 3, 1]);
        assert_eq!(BatchSplit { micro: 2, accum: 3 }.smaller()[1], BatchSplit { micro: 1, accum: 3 });
    }

    #[test]
    fn nothing_is_no_batch() {
        assert_eq!((BatchSplit::new(0, 4), BatchSplit::new(4, 0)), (None, None));
        assert_eq!((BatchSplit::new(u64::MAX, 2), BatchSplit::new(u64::MAX, 1)), (None, None));
        assert!(BatchSplit::new(4_294_967_291, 1).is_some_and(|prime| prime.rungs(1).len() == 2));
    }

    proptest! {
        #[test]
        fn the_effective_batch_is_kept(micro in 1_u64..3000, accum in 1_u64..300, group in 0_u64..9) {
            let first = BatchSplit { micro, accum };
            let rungs = first.rungs(group);
            prop_assert_eq!(rungs[0], first);
            for pair in rungs.windows(2) {
                prop_assert_eq!(pair[1].effective(), first.effective());
                prop_assert!(pair[1].micro <= pair[0].micro / 2);
                if group > 0 && accum % group == 0 {
                    prop_assert_eq!(pair[1].accum % group, 0);
                }
            }
            prop_assert!(rungs.last().is_some_and(|last| last.micro == 1));
        }
    }
}
