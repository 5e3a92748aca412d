//! What happened in a run besides its steps, in a bounded number of marks.

use lowtide_core::{Bytes, EventKind, Step};
use serde::Serialize;

/// The most marks that are kept.
pub const MARKS: usize = 1200;

/// Something that happened, or several of the same kind in a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// The kind.
    pub kind: EventKind,
    /// Seconds since the run began, at its end.
    pub time: f64,
    /// How long it took, where it takes time.
    pub seconds: f64,
    /// The step it belongs to; of several the last.
    pub step: Step,
    /// The step of the first of several.
    pub first_step: Step,
    /// How many it stands for.
    pub count: u64,
    /// The loss of an evaluation.
    pub loss: Option<f64>,
    /// The most bytes that a try held from the device which ran out of memory; of several the highest.
    pub reserved: Option<Bytes>,
    /// What happened, in one sentence; of several the last.
    pub text: String,
    /// What the engine itself said.
    pub detail: Option<String>,
}

impl Mark {
    /// One sentence, also where the mark stands for several.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self.count {
            1 => self.text.clone(),
            count => {
                let Mark { kind, first_step, step, text, .. } = self;
                format!("{count} {} from step {first_step} to {step}; the last: {text}", kind.plural())
            }
        }
    }

    /// This mark and a later one of its kind as one.
    pub(crate) fn and(self, next: Mark) -> Mark {
        let reserved = self.reserved.max(next.reserved);
        Mark { first_step: self.first_step, count: self.count + next.count, reserved, ..next }
    }
}

/// The marks of a run in the order of time.
#[derive(Debug, Default)]
pub struct Marks {
    marks: Vec<Mark>,
    thinnings: u32,
}

impl Marks {
    /// Adds a mark. Where there are too many, older ones of the commonest kind are put together.
    pub fn push(&mut self, mark: Mark) {
        self.marks.push(mark);
        if self.marks.len() > MARKS {
            self.thin();
        }
    }

    /// All marks. Earlier ones stay as they are as long as [`Marks::thinnings`] stays.
    #[must_use]
    pub fn all(&self) -> &[Mark] {
        &self.marks
    }

    /// Grows whenever earlier marks change.
    #[must_use]
    pub fn thinnings(&self) -> u32 {
        self.thinnings
    }

    /// Puts neighbours of a kind together that stand for no more than others do, so that all of a run stays told evenly.
    ///
    /// Failures and answers are touched last: only where no other kind has many marks.
    fn thin(&mut self) {
        let crowded = |kind: &EventKind| self.marks.iter().filter(|mark| mark.kind == *kind).count();
        let kinds = [
            EventKind::Saved,
            EventKind::Evaluated,
            EventKind::Cleaned,
            EventKind::Skipped,
            EventKind::Probed,
            EventKind::Climbed,
            EventKind::Overflowed,
        ];
        let failures = [
            EventKind::EvaluationFailed,
            EventKind::Rung,
            EventKind::OutOfMemory,
            EventKind::Note,
            EventKind::Started,
            EventKind::Sized,
            EventKind::Ended,
        ];
        let most = |kinds: &[EventKind]| kinds.iter().copied().max_by_key(crowded).expect("there are kinds");
        let common = most(&kinds);
        let kind = if crowded(&common) > MARKS / 8 { common } else { most(&failures) };
        let (number, of_kind) = (crowded(&kind) as u64, self.marks.iter().filter(|mark| mark.kind == kind));
        // Twice the mean: at least one pair of neighbours stays below it.
        let limit = (2 * of_kind.map(|mark| mark.count).sum::<u64>()).div_ceil(number);
        let mut thinned: Vec<Mark> = Vec::with_capacity(self.marks.len());
        let mut waiting: Option<usize> = None;
        for mark in self.marks.drain(..) {
            if mark.kind != kind {
                thinned.push(mark);
                continue;
            }
            match waiting.take() {
                Some(index) if thinned[index].count + mark.count <= limit => {
                    let first = thinned.remove(index);
                    thinned.push(first.and(mark));
                }
                _ => {
                    waiting = Some(thinned.len());
                    thinned.push(mark);
                }
            }
        }
        self.marks = thinned;
        self.thinnings += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(kind: EventKind, step: u64) -> Mark {
        let step = Step(step);
        let text = format!("{kind:?} {step}.");
        Mark {
            kind,
            time: step.0 as f64,
            seconds: 0.1,
            step,
            first_step: step,
            count: 1,
            loss: None,
            reserved: None,
            text,
            detail: None,
        }
    }

    #[test]
    fn what_is_put_together_still_counts() {
        let mut marks = Marks::default();
        for step in 1..=100_000 {
            marks.push(mark(EventKind::Saved, step));
            if step % 10_000 == 0 {
                marks.push(mark(EventKind::OutOfMemory, step));
            }
        }
        assert!(marks.all().len() <= MARKS);
        let count = |kind| marks.all().iter().filter(|mark| mark.kind == kind).map(|mark| mark.count).sum::<u64>();
        assert_eq!(count(EventKind::Saved), 100_000);
        let failures: Vec<u64> =
            marks.all().iter().filter(|mark| mark.kind == EventKind::OutOfMemory).map(|mark| mark.count).collect();
        assert_eq!(failures, [1; 10]);
        assert!(marks.all().is_sorted_by(|a, b| a.time <= b.time));
        let saved = || marks.all().iter().filter(|mark| mark.kind == EventKind::Saved);
        let first = saved().next().unwrap();
        assert_eq!(first.first_step, Step(1));
        // Evenly: no mark stands for much more than the others.
        let mean = 100_000 / saved().count() as u64;
        assert!(saved().all(|mark| mark.count <= 4 * mean), "{:?}", saved().map(|mark| mark.count).max());
        assert!(first.sentence().starts_with(&format!("{} checkpoints from step 1 to ", first.count)));
    }

    #[test]
    fn failures_alone_are_bounded_too() {
        let mut marks = Marks::default();
        (1..=50_000).for_each(|step| marks.push(mark(EventKind::OutOfMemory, step)));
        assert!(marks.all().len() <= MARKS);
        assert_eq!(marks.all().iter().map(|mark| mark.count).sum::<u64>(), 50_000);
    }
}
