//! What the guard hears.

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
    /// An evaluation ran to its end.
    Evaluated,
    /// The allocator had to free its cache and ask again since the last step, without an error: memory is nearly full.
    RetriesRose,
}

/// What a committed step needed, as measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    fn only_what_is_above_rest_grows() {
        check(100, 150, 201);
        check(150, 100, 151);
        check(0, u64::MAX, u64::MAX);
    }
}
