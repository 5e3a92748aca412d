//! What comes after a start: the end, or another start on the same rung or one lower.

use serde::Serialize;

use crate::record::story::batch_changed;
use crate::{Outcome, Start};

/// Why no further start follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The command did what it had to.
    Finished,
    /// The command was told to end.
    Interrupted,
    /// The command failed for a reason that less memory does not mend.
    Failed,
    /// Memory ran out, and it is not known how to make the command need less.
    NoRungs,
    /// Memory ran out on the last rung, twice without getting any further.
    LastRung,
    /// Memory ran out again, and a rung told of another batch than the first start.
    BatchChanged,
    /// Memory ran out once more than restarts are allowed.
    TooManyRestarts,
}

/// What comes after a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Stop(Ending),
    Again { rung: usize },
}

/// How far the starts may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Rungs there are, the command's own included; 0 where nothing can be changed.
    pub(crate) rungs: usize,
    pub(crate) restarts: u32,
    /// Whether a start can go on from where the last one was.
    pub(crate) resumes: bool,
}

/// Decides from all starts so far, of which there is at least one.
pub(crate) fn next(starts: &[Start], bounds: Bounds) -> Next {
    let [before @ .., last] = starts else { return Next::Stop(Ending::Failed) };
    match last.outcome {
        Outcome::Finished => return Next::Stop(Ending::Finished),
        Outcome::Interrupted => return Next::Stop(Ending::Interrupted),
        Outcome::Failed => return Next::Stop(Ending::Failed),
        Outcome::OutOfMemory => {}
    }
    if batch_changed(starts) {
        return Next::Stop(Ending::BatchChanged);
    }
    let lowest = last.rung + 1 >= bounds.rungs;
    if lowest && bounds.rungs < 2 && !bounds.resumes {
        return Next::Stop(Ending::NoRungs);
    }
    let got_further = |before: &Start| before.step.zip(last.step).is_some_and(|(before, last)| last > before);
    let again = before.last().is_some_and(|before| before.rung == last.rung && !got_further(before));
    if lowest && again {
        return Next::Stop(Ending::LastRung);
    }
    if starts.len() > bounds.restarts as usize {
        return Next::Stop(Ending::TooManyRestarts);
    }
    Next::Again { rung: if lowest { last.rung } else { last.rung + 1 } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ToldBatch;

    fn start(rung: usize, outcome: Outcome, step: Option<u64>) -> Start {
        Start { rung, step, ..Start::example(outcome) }
    }

    fn ran_out(rungs: &[(usize, Option<u64>)]) -> Vec<Start> {
        rungs.iter().map(|(rung, step)| start(*rung, Outcome::OutOfMemory, *step)).collect()
    }

    #[test]
    fn what_follows_an_end() {
        let bounds = Bounds { rungs: 3, restarts: 8, resumes: false };
        let cases = [
            (vec![start(0, Outcome::Finished, None)], Next::Stop(Ending::Finished)),
            (vec![start(1, Outcome::Failed, None)], Next::Stop(Ending::Failed)),
            (vec![start(0, Outcome::Interrupted, None)], Next::Stop(Ending::Interrupted)),
            (ran_out(&[(0, None)]), Next::Again { rung: 1 }),
            (ran_out(&[(0, None), (1, None)]), Next::Again { rung: 2 }),
            (ran_out(&[(0, None), (1, None), (2, Some(5))]), Next::Again { rung: 2 }),
            (ran_out(&[(1, None), (2, Some(5)), (2, Some(5))]), Next::Stop(Ending::LastRung)),
            (ran_out(&[(1, None), (2, None), (2, None)]), Next::Stop(Ending::LastRung)),
            (ran_out(&[(1, None), (2, Some(5)), (2, Some(9))]), Next::Again { rung: 2 }),
        ];
        for (starts, expected) in cases {
            assert_eq!(next(&starts, bounds), expected, "{starts:?}");
        }
        let told = |number| Start {
            told_batch: Some(ToldBatch { number, unit: "tokens" }),
            ..ran_out(&[(0, None)])[0].clone()
        };
        assert_eq!(next(&[told(8), told(8)], bounds), Next::Again { rung: 1 });
        assert_eq!(next(&[told(8), told(4)], bounds), Next::Stop(Ending::BatchChanged));
        let few = Bounds { restarts: 1, ..bounds };
        assert_eq!(next(&ran_out(&[(0, None)]), few), Next::Again { rung: 1 });
        assert_eq!(next(&ran_out(&[(0, None), (1, None)]), few), Next::Stop(Ending::TooManyRestarts));
    }

    #[test]
    fn without_rungs_only_a_checkpoint_helps() {
        let none = Bounds { rungs: 0, restarts: 8, resumes: false };
        assert_eq!(next(&ran_out(&[(0, None)]), none), Next::Stop(Ending::NoRungs));
        let resumes = Bounds { resumes: true, ..none };
        assert_eq!(next(&ran_out(&[(0, Some(3))]), resumes), Next::Again { rung: 0 });
        assert_eq!(next(&ran_out(&[(0, Some(3)), (0, Some(7))]), resumes), Next::Again { rung: 0 });
        assert_eq!(next(&ran_out(&[(0, Some(7)), (0, Some(7))]), resumes), Next::Stop(Ending::LastRung));
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
                starts.push(start(rung, Outcome::OutOfMemory, Some(step)));
                match next(&starts, Bounds { rungs, restarts, resumes }) {
                    Next::Stop(_) => break,
                    Next::Again { rung: lower } => {
                        prop_assert!(lower >= rung && lower < rungs.max(1));
                        rung = lower;
                    }
                }
            }
            prop_assert!(starts.len() <= restarts as usize + 1);
        }
    }
}
