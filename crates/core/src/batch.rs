//! Micro-batches: how a batch is cut into the pieces that are computed at once, and into which sizes it can be.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// How many samples are computed at once; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroBatch(NonZeroU32);

impl MicroBatch {
    /// One sample at a time.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// A micro-batch of `samples`, or `None` for 0.
    pub const fn new(samples: u32) -> Option<Self> {
        match NonZeroU32::new(samples) {
            Some(samples) => Some(Self(samples)),
            None => None,
        }
    }

    /// The number of samples.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Half of it, rounded down; `None` for one sample.
    pub const fn halved(self) -> Option<Self> {
        Self::new(self.get() / 2)
    }

    /// Twice as much, but not above `ceiling`; `None` where that is no more than now.
    pub fn doubled(self, ceiling: Self) -> Option<Self> {
        let wanted = Self(self.0.saturating_mul(NonZeroU32::MIN.saturating_add(1))).min(ceiling);
        (wanted > self).then_some(wanted)
    }

    /// The next smaller size that cuts a batch of `samples` into pieces of another number: sizes between would not make its
    /// pieces smaller. `None` below one sample.
    pub fn next_smaller(self, samples: Self) -> Option<Self> {
        let smaller = self.get().min(samples.get()).checked_sub(1).and_then(Self::new)?;
        let number = samples.get().div_ceil(smaller.get());
        Self::new(samples.get().div_ceil(number))
    }
}

impl fmt::Display for MicroBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The sizes into which a batch of `samples` is cut: as few pieces as `micro_batch` allows, as equal as can be, the larger
/// first. So a batch of 64 in pieces of at most 30 is 22, 21 and 21, and needs the memory of 22.
///
/// They always add up to `samples`, and none is 0: a batch of 0 samples has no pieces.
pub fn pieces(samples: u32, micro_batch: MicroBatch) -> impl ExactSizeIterator<Item = u32> {
    let number = samples.div_ceil(micro_batch.get());
    let (size, larger) = (samples.checked_div(number).unwrap_or(0), samples.checked_rem(number).unwrap_or(0));
    (0..number).map(move |piece| if piece < larger { size + 1 } else { size })
}

/// All divisors of a number, the smallest first; 0 has none. Takes as many steps as the number's square root.
#[must_use]
pub fn divisors(number: u64) -> Vec<u64> {
    let is_small = |it: &u64| *it <= number / it;
    let small: Vec<u64> = (1..).take_while(is_small).filter(|it| number.is_multiple_of(*it)).collect();
    let large = small.iter().rev().map(|it| number / it).filter(|it| !is_small(it));
    small.iter().copied().chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(samples: u32, micro_batch: u32, expect: &[u32]) {
        let pieces = pieces(samples, MicroBatch::new(micro_batch).unwrap());
        assert_eq!(pieces.len(), expect.len());
        assert_eq!(pieces.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn cuts_a_batch() {
        check(8, 4, &[4, 4]);
        check(10, 4, &[4, 3, 3]);
        check(64, 30, &[22, 21, 21]);
        check(3, 4, &[3]);
        check(0, 4, &[]);
        check(u32::MAX, u32::MAX, &[u32::MAX]);
    }

    #[test]
    fn halves_and_doubles() {
        let micro_batch = |samples| MicroBatch::new(samples).unwrap();
        assert_eq!(micro_batch(5).halved(), Some(micro_batch(2)));
        assert_eq!(MicroBatch::ONE.halved(), None);
        assert_eq!(micro_batch(2).doubled(micro_batch(5)), Some(micro_batch(4)));
        assert_eq!(micro_batch(4).doubled(micro_batch(5)), Some(micro_batch(5)));
        assert_eq!(micro_batch(5).doubled(micro_batch(5)), None);
        assert_eq!(micro_batch(6).doubled(micro_batch(5)), None);
        assert_eq!(micro_batch(u32::MAX).doubled(micro_batch(u32::MAX)), None);
    }

    #[test]
    fn smaller_sizes_are_those_that_cut_into_more_pieces() {
        let micro_batch = |samples| MicroBatch::new(samples).unwrap();
        let sizes = |samples, from| {
            let smaller = |size: &MicroBatch| size.next_smaller(micro_batch(samples));
            std::iter::successors(Some(micro_batch(from)), smaller).map(MicroBatch::get).collect::<Vec<_>>()
        };
        assert_eq!(sizes(64, 64), [64, 32, 22, 16, 13, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(sizes(10, 99), [99, 5, 4, 3, 2, 1]);
        assert_eq!(sizes(1, 1), [1]);
    }

    #[test]
    fn zero_is_refused_in_json() {
        assert!(serde_json::from_str::<MicroBatch>("0").is_err());
        assert_eq!(serde_json::from_str::<MicroBatch>("3").unwrap(), MicroBatch::new(3).unwrap());
    }

    #[test]
    fn small_numbers_have_their_divisors() {
        for number in 1..400_u64 {
            let expected: Vec<u64> = (1..=number).filter(|it| number.is_multiple_of(*it)).collect();
            assert_eq!(divisors(number), expected);
        }
        assert_eq!(divisors(0), Vec::<u64>::new());
        assert_eq!(divisors(u64::from(u32::MAX)).len(), 32);
    }
}
