//! Properties of the guard that hold whatever happens in a run.

use std::collections::BTreeMap;

use lowtide_core::{Action, Bytes, Guard, Ladder, Limits, Line, Measures, Offer, Phase, Rung, Signal, Step, Usage};
use proptest::prelude::*;
use proptest::sample::select;

use crate::kit::{micro_batch, offers, starts};

/// Something that happens; steps are counted by the test.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Failure(Phase),
    Commit { peak: u64 },
    Evaluated,
    RetriesRose,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        4 => select(&[Phase::Forward, Phase::Backward][..]).prop_map(Happening::Failure),
        2 => select(&Phase::ALL[..]).prop_map(Happening::Failure),
        6 => (0..1200_u64).prop_map(|peak| Happening::Commit { peak }),
        1 => Just(Happening::Evaluated),
        1 => Just(Happening::RetriesRose),
    ];
    prop::collection::vec(one, 0..400)
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..100_u32, 1..400_u32, 0..200_u32, 0..5_u32, 0..8_u32).prop_map(|(step, run, progress, cleans, climb_after)| {
        Limits {
            failures_per_step: step,
            failures_per_run: run,
            no_progress_failures: progress,
            cleans,
            climb_after,
            ..Limits::default()
        }
    })
}

fn signal(happening: Happening, step: Step) -> Signal {
    let line = Line::at(Bytes(1000)).expect("not 0");
    match happening {
        Happening::Failure(phase) => Signal::Failed { step, phase },
        Happening::Commit { peak } => {
            Signal::Committed { step, usage: Usage { resting: Bytes(50), peak: Bytes(peak), line } }
        }
        Happening::Evaluated => Signal::Evaluated,
        Happening::RetriesRose => Signal::RetriesRose,
    }
}

/// The training part of measures, as a key.
fn training(measures: Measures) -> [u32; 6] {
    let Measures { micro_batch, loss_chunks, recompute, shard, spill, narrow, .. } = measures;
    [micro_batch.get(), loss_chunks.get(), recompute, shard.into(), spill, narrow.into()]
}

/// The evaluation part of measures, as a key.
fn evaluation(measures: Measures) -> [u32; 2] {
    [measures.eval_micro_batch.get(), measures.eval_loss_chunks.get()]
}

/// How many parts differ.
fn differences(before: Measures, after: Measures) -> usize {
    let train = training(before).into_iter().zip(training(after));
    let eval = evaluation(before).into_iter().zip(evaluation(after));
    train.chain(eval).filter(|(before, after)| before != after).count()
}

/// Whether the guard may ever take that rung for a training step.
fn allows(offer: Offer, rung: Rung) -> bool {
    match rung {
        Rung::Clean | Rung::Stop => true,
        Rung::Split => offer.split,
        Rung::ChunkLoss => offer.loss_chunks.get() > 1,
        Rung::Recompute => offer.recompute_levels > 0,
        Rung::Shard => offer.shard,
        Rung::Spill => offer.spill_levels > 0,
        Rung::Narrow => offer.narrow,
    }
}

/// Checks one answer to a failure against what was allowed.
fn check_retry(offer: Offer, phase: Phase, rung: Rung, before: Measures, after: Measures) -> Result<(), TestCaseError> {
    let is_eval = phase == Phase::Eval;
    prop_assert!(allows(offer, rung) || (is_eval && rung == Rung::Split), "{} is not allowed", rung);
    prop_assert_eq!(differences(before, after), usize::from(rung != Rung::Clean), "one rung, one change");
    let untouched = if is_eval { training(before) == training(after) } else { evaluation(before) == evaluation(after) };
    prop_assert!(untouched, "{} must leave the other side alone", phase);
    if matches!(phase, Phase::Save | Phase::Load) {
        prop_assert_eq!(rung, Rung::Clean);
    }
    if phase == Phase::Optimizer {
        prop_assert!(matches!(rung, Rung::Clean | Rung::Shard | Rung::Spill));
    }
    Ok(())
}

/// Failures of forward and backward by training measures, forgiven by a commit with the same ones.
#[derive(Default)]
struct Tally(BTreeMap<[u32; 6], u32>);

impl Tally {
    fn note(&mut self, happening: Happening, measures: Measures) {
        match happening {
            Happening::Failure(Phase::Forward | Phase::Backward) => {
                *self.0.entry(training(measures)).or_default() += 1;
            }
            Happening::Commit { .. } => {
                self.0.remove(&training(measures));
            }
            _ => {}
        }
    }

    fn failed_twice(&self, measures: Measures) -> bool {
        self.0.get(&training(measures)).is_some_and(|times| *times >= 2)
    }
}

/// The phases whose failures can end a run.
const TRAINING: [Phase; 5] = [Phase::Load, Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Save];

/// The most failures of one step, in any mixture of phases, before the guard stops.
fn depth(offer: Offer, limits: Limits, start: Measures) -> u32 {
    let halvings = |samples: u32| samples.ilog2();
    let doublings = offer.loss_chunks.get().next_power_of_two().ilog2();
    let levels = offer.recompute_levels + offer.spill_levels + 2;
    let compute = halvings(start.micro_batch.get()) + doublings + levels;
    let eval = halvings(start.eval_micro_batch.get()) + doublings;
    let cleans = 3 + limits.checkpoint_retries;
    compute + eval + cleans + 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn it_takes_only_what_is_allowed_and_nothing_that_failed_twice(
        offer in offers(), limits in limits(), start in starts(), ceiling in 1..129_u32, happenings in happenings(),
    ) {
        let mut guard = Guard::new(Ladder { offer, limits }, start, micro_batch(ceiling));
        let mut step = Step(1);
        let mut tally = Tally::default();
        for happening in happenings {
            let before = guard.measures();
            tally.note(happening, before);
            let action = guard.on(signal(happening, step));
            let after = guard.measures();
            match (&action, happening) {
                (Action::Retry { rung, measures, .. }, Happening::Failure(phase)) => {
                    prop_assert_eq!(*measures, after);
                    check_retry(offer, phase, *rung, before, after)?;
                    let trains = matches!(phase, Phase::Forward | Phase::Backward);
                    prop_assert!(!trains || !tally.failed_twice(after), "{} failed twice", after);
                }
                (Action::Climb { measures, .. }, Happening::Commit { .. }) => {
                    prop_assert_eq!(*measures, after);
                    prop_assert!(offer.split && limits.climb_after > 0);
                    prop_assert_eq!(before.with_micro_batch(after.micro_batch), after);
                    prop_assert!(before.micro_batch < after.micro_batch);
                    prop_assert!(after.micro_batch <= micro_batch(ceiling).max(start.micro_batch));
                    prop_assert!(!tally.failed_twice(after), "{} failed twice", after);
                }
                (Action::Clean { .. }, Happening::RetriesRose) => prop_assert_eq!(before, after),
                (Action::Continue, Happening::Failure(_)) => prop_assert!(false, "a failure needs an answer"),
                (Action::Continue, _) => prop_assert_eq!(before, after),
                (Action::GiveUp(_), Happening::Failure(Phase::Eval)) => prop_assert_eq!(before, after),
                (Action::Stop(_), Happening::Failure(phase)) => {
                    prop_assert_ne!(phase, Phase::Eval, "an evaluation must not end a run");
                    break;
                }
                _ => prop_assert!(false, "{:?} is no answer to {:?}", action, happening),
            }
            if matches!(happening, Happening::Commit { .. }) {
                step = step.next();
            }
        }
    }

    #[test]
    fn a_step_that_always_fails_ends(
        offer in offers(), start in starts(), phases in prop::collection::vec(select(&Phase::ALL[..]), 1..20),
    ) {
        let limits = Limits { failures_per_step: u32::MAX, no_progress_failures: 0, ..Limits::default() };
        let mut guard = Guard::new(Ladder { offer, limits }, start, start.micro_batch);
        let mut phases = phases.iter().cycle();
        let mut failures = 0;
        loop {
            failures += 1;
            prop_assert!(failures <= depth(offer, limits, start), "it goes on and on");
            let phase = *phases.next().expect("a cycle has no end");
            match guard.on(Signal::Failed { step: Step(1), phase }) {
                Action::Stop(stop) => {
                    prop_assert_eq!(stop.tried.len() + 1, failures as usize);
                    break;
                }
                Action::GiveUp(stop) => {
                    prop_assert!(stop.tried.iter().all(|tried| tried.phase == Phase::Eval));
                    break;
                }
                _ => {}
            }
        }
    }

    #[test]
    fn failures_without_commits_end_whatever_the_step_numbers(
        offer in offers(), start in starts(), steps in prop::collection::vec((any::<u64>(), select(&TRAINING[..])), 200),
    ) {
        let limits = Limits::default();
        let mut guard = Guard::new(Ladder { offer, limits }, start, start.micro_batch);
        let stopped_at = steps.iter().position(|(step, phase)| {
            matches!(guard.on(Signal::Failed { step: Step(*step), phase: *phase }), Action::Stop(_))
        });
        prop_assert!(stopped_at.is_some_and(|at| at < limits.no_progress_failures as usize));
    }

    #[test]
    fn no_run_is_repaired_for_ever(offer in offers(), limits in limits(), start in starts(), happenings in happenings()) {
        let mut guard = Guard::new(Ladder { offer, limits }, start, start.micro_batch);
        let mut answered = 0;
        for (count, happening) in happenings.into_iter().enumerate() {
            match guard.on(signal(happening, Step(count as u64))) {
                Action::Retry { .. } if !matches!(happening, Happening::Failure(Phase::Eval)) => answered += 1,
                Action::Stop(_) => break,
                _ => {}
            }
        }
        prop_assert!(answered <= limits.failures_per_run);
    }

    #[test]
    fn the_same_signals_get_the_same_answers_after_a_checkpoint(
        offer in offers(), limits in limits(), start in starts(), happenings in happenings(), cut in 0..400_usize,
    ) {
        let mut guard = Guard::new(Ladder { offer, limits }, start, start.micro_batch);
        let cut = cut.min(happenings.len());
        for (count, happening) in happenings[..cut].iter().enumerate() {
            let _ = guard.on(signal(*happening, Step(count as u64)));
        }
        let json = serde_json::to_string(&guard).expect("a guard can be written");
        let mut restored: Guard = serde_json::from_str(&json).expect("its own text");
        for (count, happening) in happenings[cut..].iter().enumerate() {
            let signal = signal(*happening, Step((cut + count) as u64));
            prop_assert_eq!(restored.on(signal), guard.on(signal));
        }
        prop_assert_eq!(restored, guard);
    }
}
