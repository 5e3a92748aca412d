//! What the guard hears.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Line, MicroBatch, Percent, Phase, Step};

/// Something that happened in a run and that the guard must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Memory ran out. For [`Phase::Eval`], [`Phase::Save`] and [`Phase::Load`], `step` is the last committed step.
    Failed {
        /// The step that was under way.
        step: Step,
        /// What it was doing.
        phase: Phase,
    },
    /// A step was committed.
    Committed {
        /// The step.
        step: Step,
        /// What it needed.
        usage: Usage,
    },
    /// Work was done, but needed more than the device has: a part of it lay in the reserve of host memory, where it is slow.
    Overflowed {
        /// The step, or for [`Phase::Eval`] the last committed one.
        step: Step,
        /// What it was doing.
        phase: Phase,
        /// What it needed. The line is what the device had for it.
        usage: Usage,
    },
    /// An evaluation ran to its end.
    Evaluated,
    /// The allocator had to free its cache and ask again since the last step, without an error: memory is nearly full.
    RetriesRose,
}

/// What a committed step needed, as measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes in use whatever the micro-batch is: parameters, gradients, optimizer state.
    pub resting: Bytes,
    /// The most bytes in use during this step, including `resting`.
    pub peak: Bytes,
    /// The line to stay under; where the user set none, the whole device if that is known.
    pub line: Line,
}

impl Usage {
    /// Whether `peak` stays under the line and leaves this share of it free.
    #[must_use]
    pub fn admits(&self, peak: Bytes, margin: Percent) -> bool {
        self.line.admits(peak, self.line.limit().unwrap_or_default().of_percent(margin))
    }

    /// The one of several ranks with the least room: whose peak, with what it would grow by, is the largest part of its line.
    /// A rank without a line has all the room there is.
    #[must_use]
    pub fn tightest(ranks: &[Self]) -> Option<Self> {
        let grown =
            |usage: &Self| u128::from(usage.peak.saturating_add(usage.peak.saturating_sub(usage.resting)).get());
        let tighter = |one: &&Self, other: &&Self| match (one.line.limit(), other.line.limit()) {
            (Some(line), Some(others)) => {
                (grown(one) * u128::from(others.get())).cmp(&(grown(other) * u128::from(line.get())))
            }
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        ranks.iter().max_by(tighter).copied()
    }

    /// The peak to expect with another micro-batch: what is above rest grows in proportion. Rounded up.
    pub(crate) fn forecast(&self, now: MicroBatch, next: MicroBatch) -> Bytes {
        let above_rest = self.peak.saturating_sub(self.resting);
        let scaled = above_rest.scaled(next.get().into(), now.get().into()).saturating_add(Bytes(1));
        self.resting.saturating_add(scaled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(resting: u64, peak: u64, expect: u64) {
        let usage = Usage { resting: Bytes(resting), peak: Bytes(peak), line: Line::NONE };
        let micro_batch = |samples| MicroBatch::new(samples).unwrap();
        assert_eq!(usage.forecast(micro_batch(2), micro_batch(4)), Bytes(expect));
    }

    #[test]
    fn the_tightest_rank_is_that_with_the_least_room_for_more() {
        let usage = |resting, peak, line| {
            let line = Line::at(Bytes(line)).unwrap_or(Line::NONE);
            Usage { resting: Bytes(resting), peak: Bytes(peak), line }
        };
        let (half, nearly, small, free) = (usage(0, 50, 100), usage(60, 70, 100), usage(0, 6, 10), usage(0, 90, 0));
        assert_eq!(Usage::tightest(&[half, nearly, free]), Some(half), "its peak would be 100, not 80");
        assert_eq!(Usage::tightest(&[half, small]), Some(small), "by the part of its own line");
        assert_eq!(Usage::tightest(&[free, nearly]), Some(nearly));
        assert_eq!(Usage::tightest(&[free]), Some(free));
        assert_eq!(Usage::tightest(&[]), None);
    }

    #[test]
    fn only_what_is_above_rest_grows() {
        check(100, 150, 201);
        check(150, 100, 151);
        check(0, u64::MAX, u64::MAX);
    }
}
