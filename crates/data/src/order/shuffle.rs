//! How samples are shuffled, and how much of it a cache allows.
//!
//! A shuffle window is half of what the cache holds: up to there it costs no reading; at the whole cache an epoch reads
//! half as much again (`window_for`). Beyond it nothing leaves that the window still needs; what has no room is read
//! sample by sample, so that an epoch never reads much more than the data set.

use lowtide_core::Bytes;
use serde::{Deserialize, Serialize};

/// How the samples of an epoch are shuffled.
///
/// Stored with a run, because the order depends on it: a run that goes on with another window would see other samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Shuffle {
    /// Not at all: every epoch is the order in which the samples lie.
    Sequential,
    /// Shards are shuffled, taken a few at a time, and the samples of these few are shuffled together. Whole shards
    /// are read.
    Window {
        /// How many shards are taken at a time. 0 counts as 1, and more than there are as all of them.
        shards: u32,
    },
    /// All samples are shuffled together. Single samples are read.
    Full,
}

/// The largest window that costs no reading, or `None` where the cache cannot hold a shard.
///
/// All shards of a window are in use until its end. Those that have no room are read sample by sample, which costs calls
/// and not bytes; whoever reads whole shards then reads the data set tens of times over. Up to the size of the cache the
/// window takes its room from the shards that wait for the next epoch. Measured with 256 shards of which 128 fit, where at
/// least half has to be read:
///
/// | window | share of the data set read in an epoch |
/// | --- | --- |
/// | 8, 32, 64 | 0.500 |
/// | 96 | 0.544 |
/// | 128 | 0.768 |
/// | 160 | 0.756 (with `lru` 65) |
///
/// So the window is half of what fits: it costs nothing, and the other half takes in the next window while this one
/// is used up. Which shards meet in a window is left to chance, so it is the largest that have to fit. A cache that
/// holds the whole data set never reads again, and the window is all of it.
///
/// The answer is to be stored with the run: with another line it would be another, and so would the order.
pub fn window_for(cache: Bytes, shards: &[Bytes]) -> Option<u32> {
    let mut largest_first = shards.to_vec();
    largest_first.sort_unstable_by(|one, other| other.cmp(one));
    let fitting = |room: Bytes| {
        let sums = largest_first.iter().scan(Bytes::ZERO, |sum, size| {
            *sum = sum.saturating_add(*size);
            Some(*sum)
        });
        sums.take_while(|sum| *sum <= room).count() as u32
    };
    match fitting(cache) {
        0 => None,
        all if all as usize == shards.len() => Some(all),
        some => Some((some / 2).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cache: u64, shards: &[u64], expect: Option<u32>) {
        let shards: Vec<_> = shards.iter().copied().map(Bytes).collect();
        assert_eq!(window_for(Bytes(cache), &shards), expect, "{cache} bytes for {shards:?}");
    }

    #[test]
    fn a_window_is_half_the_cache() {
        check(0, &[10; 8], None);
        check(9, &[10; 8], None);
        check(10, &[10; 8], Some(1));
        check(39, &[10; 8], Some(1));
        check(40, &[10; 8], Some(2));
        check(79, &[10; 8], Some(3));
        check(80, &[10; 8], Some(8));
        check(1000, &[10; 8], Some(8));
    }

    #[test]
    fn the_largest_shards_have_to_fit() {
        check(10, &[1, 1, 1, 1, 1, 1, 1, 10], Some(1));
        check(14, &[1, 1, 1, 1, 1, 1, 1, 10], Some(2));
        check(9, &[1, 1, 1, 1, 1, 1, 1, 10], None);
        check(u64::MAX, &[u64::MAX, 1], Some(2));
        check(5, &[], None);
    }
}
