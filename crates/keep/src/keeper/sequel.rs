//! What comes after a start: the end, or another start on the same rung or one lower.

use lowtide_core::Bytes;
use lowtide_log::Activity;

use crate::{Conclusion, EndKind, StartRecord, batch_changed};

/// No longer do libraries and a checkpoint take to load, for the most part.
const LOADING_SECONDS: f64 = 60.0;
/// What PyTorch's allocator asks a card for where up to 1 MiB, or up to 10 MiB, are wanted.
const BLOCKS: [Bytes; 2] = [Bytes::from_mib(2), Bytes::from_mib(20)];

/// What comes after a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sequel {
    Stop(Conclusion),
    Again {
        rung: usize,
    },
    /// From an earlier checkpoint or from step 0: what was to be resumed from could not be used.
    Anew {
        rung: usize,
    },
}

/// How far the starts may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Rungs there are, the command's own included; 0 where nothing can be changed.
    pub(crate) rungs: usize,
    pub(crate) restarts: u32,
    /// Whether a start can go on from where the last one was.
    pub(crate) resumes: bool,
    /// Whether a start that fails to resume is followed by another: where there is an earlier checkpoint, or resuming was
    /// our idea.
    pub(crate) anew: bool,
}

/// Decides from all starts so far, of which there is at least one.
pub(crate) fn next(starts: &[StartRecord], bounds: Bounds) -> Sequel {
    let [before @ .., last] = starts else { return Sequel::Stop(Conclusion::Failed) };
    match last.outcome {
        EndKind::Finished => return Sequel::Stop(Conclusion::Finished),
        EndKind::Interrupted => return Sequel::Stop(Conclusion::Interrupted),
        EndKind::Failed
            if bounds.anew && could_not_resume(before, last) && starts.len() <= bounds.restarts as usize =>
        {
            return Sequel::Anew { rung: last.rung };
        }
        EndKind::Failed => return Sequel::Stop(Conclusion::Failed),
        EndKind::OutOfMemory => {}
    }
    if batch_changed(starts) {
        return Sequel::Stop(Conclusion::BatchChanged);
    }
    if before.last().is_some_and(|before| is_same_for_any_batch(before, last)) {
        return Sequel::Stop(Conclusion::SameOnEveryRung);
    }
    let lowest = last.rung + 1 >= bounds.rungs;
    if lowest && bounds.rungs < 2 && !bounds.resumes {
        return Sequel::Stop(Conclusion::NoRungs);
    }
    let unmoved = unmoved_rungs(starts) >= unmoved_limit(last);
    if lowest && unmoved {
        return Sequel::Stop(Conclusion::SameOnEveryRung);
    }
    let got_further = |before: &StartRecord| before.step.zip(last.step).is_some_and(|(before, last)| last > before);
    let again = before.last().is_some_and(|before| before.rung == last.rung && !got_further(before));
    if lowest && again {
        return Sequel::Stop(Conclusion::LastRung);
    }
    if starts.len() > bounds.restarts as usize {
        return Sequel::Stop(Conclusion::TooManyRestarts);
    }
    let leapt = before.last().is_some_and(|before| is_leap(before, last));
    let rung = match (lowest, unmoved) {
        (true, _) => last.rung,
        (false, false) => last.rung + 1,
        (false, true) if leapt => bounds.rungs - 1,
        // The middle of those that are left: what fits there trains faster than on the last one.
        (false, true) => (last.rung + bounds.rungs) / 2,
    };
    Sequel::Again { rung }
}

/// Whether rungs between two starts were left out, so that nothing shows that they do not fit.
pub(crate) const fn is_leap(before: &StartRecord, last: &StartRecord) -> bool {
    last.rung > before.rung + 1
}

/// Whether a start that was to resume failed before its first step: a version that refuses its own checkpoint, or a flag that
/// is not taken after all.
///
/// The numbers of steps say little: a bar may count within an epoch, and the checkpoint in all. Any step does, but for that of
/// the checkpoint, which may be told while it is read. Where no start told of steps, it shows by the stack of the error, or
/// because there was no time for one.
pub(crate) fn could_not_resume(before: &[StartRecord], start: &StartRecord) -> bool {
    let is_step = |step: u64| step > 0 && Some(step) != start.resumed_step;
    let would_tell = before.iter().any(|start| start.step.is_some());
    let is_early = would_tell || start.phase == Some(Activity::Loading) || start.seconds < LOADING_SECONDS;
    start.resumed_from.is_some() && !start.step.is_some_and(is_step) && is_early
}

/// How many rungs the last starts ran out on at the same request, without getting any further.
///
/// If that is many, the micro-batch hardly matters, and the least one shows whether it matters at all. PyTorch's blocks are the
/// same request whatever the micro-batch.
fn unmoved_rungs(starts: &[StartRecord]) -> usize {
    let same = |[before, last]: &[&StartRecord; 2]| {
        before.rung != last.rung
            && before.outcome == EndKind::OutOfMemory
            && before.requested_bytes == last.requested_bytes
            && !last.requested_bytes.is_some_and(|bytes| BLOCKS.contains(&bytes))
            && before.phase == last.phase
            && before.step == last.step
    };
    let pairs = starts.iter().rev().skip(1).zip(starts.iter().rev()).map(|(before, last)| [before, last]);
    1 + pairs.take_while(same).count()
}

/// How many rungs are enough to see that. Where no size is told, each of them may have asked for less than the one before.
const fn unmoved_limit(last: &StartRecord) -> usize {
    if last.requested_bytes.is_some() { 3 } else { 4 }
}

/// Whether memory ran out on two rungs at what no micro-batch makes smaller: the same size for weights or the optimizer,
/// or the same words where no size is told.
///
/// A gradient has its size on every rung too, but the activations before it have not, so the next rung may hold it.
fn is_same_for_any_batch(before: &StartRecord, last: &StartRecord) -> bool {
    let is_fixed = |start: &StartRecord| matches!(start.phase, Some(Activity::Loading | Activity::Optimizer));
    before.rung != last.rung
        && before.outcome == EndKind::OutOfMemory
        && before.requested_bytes == last.requested_bytes
        && (last.requested_bytes.is_some() || last.line.is_some() && before.line == last.line)
        && before.phase == last.phase
        && is_fixed(last)
        && before.step >= last.step
}

#[cfg(test)]
mod tests {
    use lowtide_log::{BatchReport, BatchUnit};
    use proptest::prelude::*;

    use super::*;
    use crate::{End, Peak};

    fn start(rung: usize, outcome: EndKind, step: Option<u64>) -> StartRecord {
        StartRecord {
            rung,
            batch: None,
            command: Vec::new(),
            environment: Vec::new(),
            resumed_from: None,
            resumed_step: None,
            log: String::new(),
            log_cut: None,
            output_bytes: 0,
            seconds: 1.0,
            end: End::Code(1),
            outcome,
            cause: None,
            requested_bytes: None,
            phase: None,
            line: None,
            evidence: None,
            batch_report: None,
            step,
            peak: Peak::default(),
            inside: None,
        }
    }

    fn ran_out(rungs: &[(usize, Option<u64>)]) -> Vec<StartRecord> {
        rungs.iter().map(|(rung, step)| start(*rung, EndKind::OutOfMemory, *step)).collect()
    }

    #[test]
    fn what_follows_an_end() {
        let bounds = Bounds { rungs: 3, restarts: 8, resumes: false, anew: false };
        let cases = [
            (vec![start(0, EndKind::Finished, None)], Sequel::Stop(Conclusion::Finished)),
            (vec![start(1, EndKind::Failed, None)], Sequel::Stop(Conclusion::Failed)),
            (vec![start(0, EndKind::Interrupted, None)], Sequel::Stop(Conclusion::Interrupted)),
            (ran_out(&[(0, None)]), Sequel::Again { rung: 1 }),
            (ran_out(&[(0, None), (1, None)]), Sequel::Again { rung: 2 }),
            (ran_out(&[(0, None), (1, None), (2, Some(5))]), Sequel::Again { rung: 2 }),
            (ran_out(&[(1, None), (2, Some(5)), (2, Some(5))]), Sequel::Stop(Conclusion::LastRung)),
            (ran_out(&[(1, None), (2, None), (2, None)]), Sequel::Stop(Conclusion::LastRung)),
            (ran_out(&[(1, None), (2, Some(5)), (2, Some(9))]), Sequel::Again { rung: 2 }),
        ];
        for (starts, expected) in cases {
            assert_eq!(next(&starts, bounds), expected, "{starts:?}");
        }
        let asking = |rung, size, phase, step| StartRecord {
            requested_bytes: Some(Bytes(size)),
            phase: Some(phase),
            ..start(rung, EndKind::OutOfMemory, step)
        };
        let same = Sequel::Stop(Conclusion::SameOnEveryRung);
        for (first, second, expected) in [
            (asking(0, 50, Activity::Loading, None), asking(1, 50, Activity::Loading, None), same),
            (asking(0, 50, Activity::Optimizer, Some(1)), asking(1, 50, Activity::Optimizer, Some(1)), same),
            // Further than before, another size, activations, the same rung.
            (
                asking(0, 50, Activity::Optimizer, Some(1)),
                asking(1, 50, Activity::Optimizer, Some(2)),
                Sequel::Again { rung: 2 },
            ),
            (asking(0, 50, Activity::Loading, None), asking(1, 25, Activity::Loading, None), Sequel::Again { rung: 2 }),
            (
                asking(0, 50, Activity::Training, None),
                asking(1, 50, Activity::Training, None),
                Sequel::Again { rung: 2 },
            ),
            (asking(0, 50, Activity::Loading, None), asking(0, 50, Activity::Loading, None), Sequel::Again { rung: 1 }),
        ] {
            assert_eq!(next(&[first.clone(), second], bounds), expected, "{first:?}");
        }
        // Whatever it was doing: the same size on three rungs, and the middle one is tried, and then the last one.
        let deep = Bounds { rungs: 9, restarts: 8, resumes: false, anew: false };
        let unmoved = |rungs: &[usize], size| -> Vec<StartRecord> {
            rungs
                .iter()
                .map(|rung| StartRecord { requested_bytes: size, ..start(*rung, EndKind::OutOfMemory, Some(3)) })
                .collect()
        };
        let size = Some(Bytes(50));
        assert_eq!(next(&unmoved(&[0, 1], size), deep), Sequel::Again { rung: 2 });
        assert_eq!(next(&unmoved(&[0, 1, 2], size), deep), Sequel::Again { rung: 5 });
        assert_eq!(next(&unmoved(&[0, 1, 2, 5], size), deep), Sequel::Again { rung: 8 });
        assert_eq!(next(&unmoved(&[0, 1, 2, 5, 8], size), deep), same);
        assert_eq!(next(&unmoved(&[0, 1, 2], None), deep), Sequel::Again { rung: 3 });
        assert_eq!(next(&unmoved(&[0, 1, 2, 3], None), deep), Sequel::Again { rung: 6 });
        assert_eq!(next(&unmoved(&[0, 1, 2, 3, 6], None), deep), Sequel::Again { rung: 8 });
        assert_eq!(next(&unmoved(&[0, 1, 2, 3, 6, 8], None), deep), same);
        // PyTorch's own blocks say nothing of the batch.
        for block in [2, 20].map(|mib| Some(Bytes::from_mib(mib))) {
            assert_eq!(next(&unmoved(&[0, 1, 2, 3, 4], block), deep), Sequel::Again { rung: 5 });
        }
        let mut shrinking = unmoved(&[0, 1, 2], size);
        shrinking[2].requested_bytes = Some(Bytes(25));
        assert_eq!(next(&shrinking, deep), Sequel::Again { rung: 3 });
        let mut further = unmoved(&[0, 1, 2], size);
        further[2].step = Some(4);
        assert_eq!(next(&further, deep), Sequel::Again { rung: 3 });
        // Without a size, words tell that it was the same.
        let loading = |rung, line: &str| StartRecord {
            phase: Some(Activity::Loading),
            line: Some(line.to_owned()),
            ..start(rung, EndKind::OutOfMemory, None)
        };
        assert_eq!(next(&[loading(0, "MemoryError"), loading(1, "MemoryError")], deep), same);
        assert_eq!(next(&[loading(0, "MemoryError"), loading(1, "Killed")], deep), Sequel::Again { rung: 2 });
        let told = |number| StartRecord {
            batch_report: Some(BatchReport { number, unit: BatchUnit::Tokens }),
            ..ran_out(&[(0, None)])[0].clone()
        };
        assert_eq!(next(&[told(8), told(8)], bounds), Sequel::Again { rung: 1 });
        assert_eq!(next(&[told(8), told(4)], bounds), Sequel::Stop(Conclusion::BatchChanged));
        let few = Bounds { restarts: 1, ..bounds };
        assert_eq!(next(&ran_out(&[(0, None)]), few), Sequel::Again { rung: 1 });
        assert_eq!(next(&ran_out(&[(0, None), (1, None)]), few), Sequel::Stop(Conclusion::TooManyRestarts));
    }

    #[test]
    fn what_cannot_be_resumed_begins_anew() {
        let bounds = Bounds { rungs: 3, restarts: 2, resumes: true, anew: true };
        let failed = |step| StartRecord {
            resumed_from: Some("out/ckpt.pt".to_owned()),
            resumed_step: Some(5),
            ..start(1, EndKind::Failed, step)
        };
        let after = |start: StartRecord, bounds| next(&[ran_out(&[(0, Some(7))])[0].clone(), start], bounds);
        assert_eq!(after(failed(None), bounds), Sequel::Anew { rung: 1 });
        assert_eq!(after(failed(Some(5)), bounds), Sequel::Anew { rung: 1 });
        let stop = Sequel::Stop(Conclusion::Failed);
        assert_eq!(after(failed(Some(6)), bounds), stop);
        // A bar that counts within an epoch.
        assert_eq!(after(failed(Some(4)), bounds), stop);
        // Of a script that tells of no steps, the time or the stack says it.
        let silent = |seconds, phase| {
            let start = StartRecord { seconds, phase, ..failed(None) };
            next(&[ran_out(&[(0, None)])[0].clone(), start], bounds)
        };
        assert_eq!(silent(5.0, None), Sequel::Anew { rung: 1 });
        assert_eq!(silent(900.0, None), stop);
        assert_eq!(silent(900.0, Some(Activity::Loading)), Sequel::Anew { rung: 1 });
        assert_eq!(after(failed(None), Bounds { anew: false, ..bounds }), stop);
        assert_eq!(after(failed(None), Bounds { restarts: 1, ..bounds }), stop);
        assert_eq!(after(start(1, EndKind::Failed, None), bounds), stop);
    }

    #[test]
    fn without_rungs_only_a_checkpoint_helps() {
        let none = Bounds { rungs: 0, restarts: 8, resumes: false, anew: false };
        assert_eq!(next(&ran_out(&[(0, None)]), none), Sequel::Stop(Conclusion::NoRungs));
        let resumes = Bounds { resumes: true, ..none };
        assert_eq!(next(&ran_out(&[(0, Some(3))]), resumes), Sequel::Again { rung: 0 });
        assert_eq!(next(&ran_out(&[(0, Some(3)), (0, Some(7))]), resumes), Sequel::Again { rung: 0 });
        assert_eq!(next(&ran_out(&[(0, Some(7)), (0, Some(7))]), resumes), Sequel::Stop(Conclusion::LastRung));
    }

    proptest! {
        #[test]
        fn it_always_ends(
            rungs in 0_usize..9,
            restarts in 0_u32..20,
            resumes: bool,
            steps in proptest::collection::vec(0_u64..50, 25),
        ) {
            let mut starts = Vec::new();
            let mut rung = 0;
            for step in steps {
                starts.push(start(rung, EndKind::OutOfMemory, Some(step)));
                match next(&starts, Bounds { rungs, restarts, resumes, anew: false }) {
                    Sequel::Stop(_) => break,
                    Sequel::Again { rung: lower } | Sequel::Anew { rung: lower } => {
                        prop_assert!(lower >= rung && lower < rungs.max(1));
                        rung = lower;
                    }
                }
            }
            prop_assert!(starts.len() <= restarts as usize + 1);
        }
    }
}
