//! Which part of the order a rank takes.
//!
//! All ranks walk the same order. A step takes the next `batch` samples for each rank, and each rank takes its own of them:
//! what a step trains on depends on its place in the order alone, so that a run goes on with another number of ranks.
//!
//! Ranks wait for each other, so all of them make the same number of steps, and none of these is empty: the last samples
//! of an epoch are divided evenly, and where fewer than one for each rank would be left over, the step before takes them
//! too.

use std::ops::Range;

/// What becomes of the samples at the end of an epoch that are too few for a whole step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tail {
    /// They make a smaller step.
    #[default]
    Keep,
    /// They are left out.
    Drop,
}

/// The part of every step that one rank takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    rank: u64,
    ranks: u64,
    batch: u64,
    tail: Tail,
}

/// A step: positions in an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRange {
    /// Those of all ranks.
    pub all: Range<u64>,
    /// Those of this one.
    pub own: Range<u64>,
}

impl Share {
    /// What `rank` of so many ranks takes, `batch` samples at a time; `None` where there is no such rank, or no batch.
    #[must_use]
    pub fn new(rank: u64, ranks: u64, batch: u64, tail: Tail) -> Option<Self> {
        (rank < ranks && batch > 0 && ranks.checked_mul(batch).is_some()).then_some(Self { rank, ranks, batch, tail })
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> u64 {
        self.ranks
    }

    /// The step that begins at `position` of an epoch of `samples`; `None` where the epoch has no further one.
    #[must_use]
    pub fn step_at(&self, samples: u64, position: u64) -> Option<StepRange> {
        let (whole, left) = (self.ranks * self.batch, samples.saturating_sub(position));
        let size = match self.tail {
            Tail::Drop if left < whole => return None,
            Tail::Drop => whole,
            Tail::Keep if left < self.ranks => return None,
            Tail::Keep if left - left.min(whole) < self.ranks => left,
            Tail::Keep => whole,
        };
        let (each, more) = (size / self.ranks, size % self.ranks);
        let start = position + self.rank * each + self.rank.min(more);
        let own = start..start + each + u64::from(self.rank < more);
        Some(StepRange { all: position..position + size, own })
    }

    /// How many steps an epoch of `samples` has from `position` on.
    #[must_use]
    pub fn steps_from(&self, samples: u64, position: u64) -> u64 {
        let (whole, left) = (self.ranks * self.batch, samples.saturating_sub(position));
        let (steps, rest) = (left / whole, left % whole);
        match self.tail {
            Tail::Keep if rest >= self.ranks => steps + 1,
            _ => steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tail: Tail, (ranks, batch, samples): (u64, u64, u64), expect: &[&[u64]]) {
        let mut taken: Vec<Vec<u64>> = Vec::new();
        for rank in 0..ranks {
            let share = Share::new(rank, ranks, batch, tail).unwrap();
            let (mut position, mut sizes) = (0, Vec::new());
            while let Some(step) = share.step_at(samples, position) {
                assert_eq!(share.steps_from(samples, position), share.steps_from(samples, 0) - sizes.len() as u64);
                let before: u64 = taken.iter().map(|before| before[sizes.len()]).sum();
                assert_eq!(step.all.start + before, step.own.start);
                sizes.push(step.own.end - step.own.start);
                position = step.all.end;
            }
            taken.push(sizes);
        }
        assert_eq!(taken, expect);
    }

    #[test]
    fn all_ranks_make_the_same_steps() {
        check(Tail::Keep, (1, 4, 10), &[&[4, 4, 2]]);
        check(Tail::Drop, (1, 4, 10), &[&[4, 4]]);
        check(Tail::Keep, (1, 4, 8), &[&[4, 4]]);
        check(Tail::Keep, (2, 2, 8), &[&[2, 2], &[2, 2]]);
        check(Tail::Keep, (2, 2, 10), &[&[2, 2, 1], &[2, 2, 1]]);
        check(Tail::Keep, (2, 2, 9), &[&[2, 3], &[2, 2]]);
        check(Tail::Drop, (2, 2, 11), &[&[2, 2], &[2, 2]]);
        check(Tail::Keep, (3, 4, 10), &[&[4], &[3], &[3]]);
        check(Tail::Keep, (3, 1, 2), &[&[], &[], &[]]);
        check(Tail::Drop, (3, 1, 2), &[&[], &[], &[]]);
    }

    #[test]
    fn every_sample_is_taken_once() {
        for (ranks, batch) in [(1, 1), (1, 7), (2, 1), (2, 5), (3, 2), (8, 4)] {
            for samples in ranks..80 {
                let mut taken = vec![0; samples as usize];
                for rank in 0..ranks {
                    let share = Share::new(rank, ranks, batch, Tail::Keep).unwrap();
                    let mut position = 0;
                    while let Some(step) = share.step_at(samples, position) {
                        step.own.for_each(|at| taken[at as usize] += 1);
                        position = step.all.end;
                    }
                }
                assert!(taken.iter().all(|times| *times == 1), "{ranks} ranks of {batch}: {taken:?}");
            }
        }
    }

    #[test]
    fn there_is_no_share_of_nobody() {
        assert_eq!(Share::new(2, 2, 1, Tail::Keep), None);
        assert_eq!(Share::new(0, 1, 0, Tail::Keep), None);
        assert_eq!(Share::new(0, 2, u64::MAX, Tail::Keep), None);
    }
}
