//! The guard's answers, case by case.

use std::num::NonZeroU32;

use lowtide_core::{
    Action, Bytes, Guard, Ladder, Limits, Line, Measures, MicroBatch, Offer, Phase, Reason, Rung, Signal, Step,
    StopCause, Usage,
};

use crate::kit::micro_batch;

fn everything() -> Offer {
    let loss_chunks = NonZeroU32::new(4).expect("not 0");
    Offer { split: true, loss_chunks, recompute_levels: 2, shard: true, spill_levels: 2, narrow: true }
}

fn guard(offer: Offer, limits: Limits) -> Guard {
    let start = Measures::new(micro_batch(4), micro_batch(2));
    Guard::new(Ladder { offer, limits }, start, micro_batch(4))
}

fn fail(guard: &mut Guard, step: u64, phase: Phase) -> Action {
    guard.on(Signal::Failed { step: Step(step), phase })
}

/// Commits a step that needs `peak` of a line of 1,000 bytes, 100 of them between steps.
fn commit(guard: &mut Guard, step: u64, peak: u64) -> Action {
    let line = Line::at(Bytes(1000)).expect("not 0");
    guard.on(Signal::Committed { step: Step(step), usage: Usage { resting: Bytes(100), peak: Bytes(peak), line } })
}

/// The rung of an answer, and the micro-batch from then on.
fn rung(action: &Action) -> (Rung, u32) {
    match action {
        Action::Retry { rung, measures, .. } => (*rung, measures.micro_batch.get()),
        Action::Stop(stop) | Action::GiveUp(stop) => (Rung::Stop, stop.measures.micro_batch.get()),
        other => panic!("no answer to a failure: {other:?}"),
    }
}

/// Fails one step in `phase` until the guard stops, and compares the rungs with `expect`.
#[track_caller]
fn check_descent(offer: Offer, phase: Phase, expect: &[Rung]) -> Guard {
    let mut guard = guard(offer, Limits::default());
    let mut taken = Vec::new();
    while taken.last() != Some(&Rung::Stop) {
        taken.push(rung(&fail(&mut guard, 1, phase)).0);
    }
    assert_eq!(taken, expect);
    guard
}

#[test]
fn goes_down_one_rung_per_failure() {
    use Rung::{ChunkLoss, Clean, Narrow, Recompute, Shard, Spill, Split, Stop};
    let whole = [Clean, Split, Split, ChunkLoss, ChunkLoss, Recompute, Recompute, Shard, Spill, Spill, Narrow, Stop];
    check_descent(everything(), Phase::Forward, &whole);
    check_descent(everything(), Phase::Backward, &whole);
    check_descent(Offer::default(), Phase::Forward, &[Clean, Split, Split, Stop]);
    check_descent(Offer { split: false, ..Offer::default() }, Phase::Forward, &[Clean, Stop]);
}

#[test]
fn the_optimizer_cleans_shards_spills_and_stops() {
    use Rung::{Clean, Shard, Spill, Stop};
    let guard = check_descent(everything(), Phase::Optimizer, &[Clean, Shard, Spill, Spill, Stop]);
    assert_eq!(guard.measures().micro_batch, micro_batch(4));
    check_descent(Offer::default(), Phase::Optimizer, &[Clean, Stop]);
}

#[test]
fn evaluation_leaves_training_alone() {
    let expect = [Rung::Clean, Rung::Split, Rung::ChunkLoss, Rung::ChunkLoss, Rung::Stop];
    let after = check_descent(everything(), Phase::Eval, &expect).measures();
    let before = guard(everything(), Limits::default()).measures();
    assert_eq!(after.eval_micro_batch, MicroBatch::ONE);
    let undone = Measures { eval_micro_batch: before.eval_micro_batch, eval_loss_chunks: NonZeroU32::MIN, ..after };
    assert_eq!(undone, before);
}

#[test]
fn a_failing_evaluation_never_ends_training() {
    let mut guard = guard(Offer::default(), Limits { failures_per_run: 3, ..Limits::default() });
    let expect = [Rung::Clean, Rung::Split, Rung::Stop];
    for wanted in expect {
        assert_eq!(rung(&fail(&mut guard, 1, Phase::Eval)).0, wanted);
    }
    // From now on each evaluation is tried twice, with the smallest measures.
    for step in 2..1000 {
        assert_eq!(commit(&mut guard, step, 900), Action::Continue);
        assert_eq!(rung(&fail(&mut guard, step, Phase::Eval)).0, Rung::Clean);
        let Action::GiveUp(stop) = fail(&mut guard, step, Phase::Eval) else { panic!("nothing is left") };
        assert_eq!(stop.tried.len(), 1);
        assert_eq!(
            stop.to_string(),
            format!("memory ran out in eval of step {step}, and nothing that is allowed is left to try")
        );
    }
    assert!(!guard.has_stopped());
    assert_eq!(guard.failures(), 3 + 2 * 998);
    assert_eq!(rung(&fail(&mut guard, 1000, Phase::Forward)), (Rung::Clean, 4));
}

#[test]
fn a_guard_knows_its_ladder() {
    let (ladder, ceiling) = (Ladder { offer: everything(), ..Ladder::default() }, micro_batch(4));
    let guard = guard(everything(), Limits::default());
    assert!(guard.follows(&ladder, ceiling));
    assert!(!guard.follows(&ladder, micro_batch(8)));
    assert!(!guard.follows(&Ladder::default(), ceiling));
}

#[test]
fn checkpoints_are_tried_again_a_few_times() {
    let expect = [Rung::Clean, Rung::Clean, Rung::Clean, Rung::Stop];
    for phase in [Phase::Save, Phase::Load] {
        let guard = check_descent(everything(), phase, &expect);
        assert_eq!(guard.measures().micro_batch, micro_batch(4));
    }
}

#[test]
fn passing_failures_cost_a_repeated_step_and_nothing_else() {
    let mut guard = guard(everything(), Limits::default());
    for (step, phase) in [(1, Phase::Forward), (2, Phase::Backward), (3, Phase::Optimizer), (4, Phase::Forward)] {
        assert_eq!(rung(&fail(&mut guard, step, phase)), (Rung::Clean, 4));
        assert_eq!(commit(&mut guard, step, 900), Action::Continue);
    }
    assert_eq!(guard.failures(), 4);
}

#[test]
fn cleaning_wears_out() {
    let limits = Limits { cleans: 2, ..Limits::default() };
    let mut guard = guard(Offer::default(), limits);
    for step in 1..=2 {
        assert_eq!(rung(&fail(&mut guard, step, Phase::Forward)), (Rung::Clean, 4));
        assert_eq!(commit(&mut guard, step, 900), Action::Continue);
    }
    let answer = fail(&mut guard, 3, Phase::Forward);
    assert_eq!(rung(&answer), (Rung::Split, 2));
    assert!(matches!(answer, Action::Retry { reason: Reason::CleaningWornOut { .. }, .. }));
    for step in 3..=200 {
        assert_eq!(commit(&mut guard, step, 200), Action::Continue, "4 is out, so it stays at 2");
    }
}

#[test]
fn climbs_back_when_there_is_room() {
    let mut guard = guard(Offer::default(), Limits { climb_after: 3, ..Limits::default() });
    // 4 fails twice, 2 once.
    for expect in [(Rung::Clean, 4), (Rung::Split, 2), (Rung::Split, 1)] {
        assert_eq!(rung(&fail(&mut guard, 1, Phase::Forward)), expect);
    }
    // 100 + 2 * 500 is above the line; 100 + 2 * 426 leaves less than 5 %.
    for (step, peak) in [(1, 600), (2, 600), (3, 600), (4, 526)] {
        assert_eq!(commit(&mut guard, step, peak), Action::Continue);
    }
    let answer = commit(&mut guard, 5, 500);
    let Action::Climb { measures, reason } = answer else { panic!("there is room: {answer:?}") };
    assert_eq!(measures.micro_batch, micro_batch(2));
    assert_eq!(reason, Reason::Room { forecast: Bytes(901), limit: Some(Bytes(1000)) });
    // The second failure of 2: no cleaning, and never again.
    let answer = fail(&mut guard, 6, Phase::Backward);
    assert_eq!(rung(&answer), (Rung::Split, 1));
    assert!(matches!(answer, Action::Retry { reason: Reason::FailedTwice { .. }, .. }));
    for step in 6..=50 {
        assert_eq!(commit(&mut guard, step, 110), Action::Continue);
    }
}

#[test]
fn larger_batches_raise_what_never_had_to_fall() {
    let mut fresh = guard(Offer::default(), Limits::default());
    fresh.raise_ceiling(micro_batch(2));
    assert_eq!(fresh.measures().micro_batch, micro_batch(4), "a smaller batch changes nothing");
    fresh.raise_ceiling(micro_batch(6));
    fresh.raise_eval(micro_batch(64));
    assert_eq!((fresh.measures().micro_batch, fresh.measures().eval_micro_batch), (micro_batch(6), micro_batch(64)));

    let mut fallen = guard(Offer::default(), Limits { climb_after: 1, ..Limits::default() });
    for expect in [(Rung::Clean, 4), (Rung::Split, 2)] {
        assert_eq!(rung(&fail(&mut fallen, 1, Phase::Forward)), expect);
    }
    let _ = fail(&mut fallen, 1, Phase::Eval);
    fallen.raise_ceiling(micro_batch(16));
    fallen.raise_eval(micro_batch(64));
    assert_eq!(fallen.measures().micro_batch, micro_batch(2));
    assert!(fallen.measures().eval_micro_batch < micro_batch(64));
    // 4 failed twice and stays out, however large batches are; 3 did not.
    assert_eq!(climbed(&commit(&mut fallen, 1, 200)), Some(3));
    assert_eq!(commit(&mut fallen, 2, 200), Action::Continue);
}

#[test]
fn it_climbs_to_a_size_between_where_the_double_does_not_fit() {
    let limits = Limits { climb_after: 1, ..Limits::default() };
    let start = Measures::new(micro_batch(16), micro_batch(2));
    let mut guard = Guard::new(Ladder { offer: Offer::default(), limits }, start, micro_batch(64));
    // 100 of 600 are there without a sample, so 22 samples, a third of the batch, need about 788 of 1000.
    assert_eq!(climbed(&commit(&mut guard, 1, 600)), Some(22));
    // 26 would cut the batch into three pieces as well.
    assert_eq!(commit(&mut guard, 2, 788), Action::Continue);
}

fn climbed(action: &Action) -> Option<u32> {
    match action {
        Action::Climb { measures, .. } => Some(measures.micro_batch.get()),
        _ => None,
    }
}

#[test]
fn a_model_that_may_not_be_split_does_not_climb() {
    let start = Measures::new(micro_batch(2), micro_batch(2));
    let ladder = Ladder {
        offer: Offer { split: false, ..everything() },
        limits: Limits { climb_after: 1, ..Limits::default() },
    };
    let mut guard = Guard::new(ladder, start, micro_batch(8));
    assert_eq!(commit(&mut guard, 1, 110), Action::Continue);
}

#[test]
fn warnings_clean_now_and_then() {
    let mut guard = guard(Offer::default(), Limits { warning_rest: 3, ..Limits::default() });
    let clean = Action::Clean { reason: Reason::RetriesRose };
    assert_eq!(guard.on(Signal::RetriesRose), clean);
    for step in 1..=3 {
        assert_eq!(guard.on(Signal::RetriesRose), Action::Continue);
        assert_eq!(commit(&mut guard, step, 900), Action::Continue);
    }
    assert_eq!(guard.on(Signal::RetriesRose), clean);
}

#[test]
fn a_warning_puts_climbing_off() {
    let limits = Limits { climb_after: 2, ..Limits::default() };
    let start = Measures::new(micro_batch(2), micro_batch(2));
    let mut guard = Guard::new(Ladder { offer: Offer::default(), limits }, start, micro_batch(4));
    assert_eq!(commit(&mut guard, 1, 200), Action::Continue);
    assert_eq!(guard.on(Signal::RetriesRose), Action::Clean { reason: Reason::RetriesRose });
    assert_eq!(commit(&mut guard, 2, 200), Action::Continue);
    assert!(matches!(commit(&mut guard, 3, 200), Action::Climb { .. }));
}

#[track_caller]
fn check_stop(limits: Limits, signals: impl Fn(&mut Guard) -> Action, expect: StopCause) {
    let mut guard = guard(everything(), limits);
    let answer = (0..1000).map(|_| signals(&mut guard)).find(|action| matches!(action, Action::Stop(_)));
    let Some(Action::Stop(stop)) = answer else { panic!("it never stopped") };
    assert_eq!(stop.cause, expect);
    assert_eq!(fail(&mut guard, 9, Phase::Eval), Action::Stop(stop.clone()), "it stays stopped");
    assert_eq!(commit(&mut guard, 9, 1), Action::Stop(stop));
}

#[test]
fn the_limits_stop_it() {
    let limits = Limits { failures_per_step: 3, ..Limits::default() };
    check_stop(limits, |guard| fail(guard, 1, Phase::Forward), StopCause::TooManyFailuresInStep { limit: 3 });

    let fail_and_commit = |guard: &mut Guard| {
        let answer = fail(guard, 1, Phase::Save);
        let _ = commit(guard, 1, 900);
        answer
    };
    let limits = Limits { failures_per_run: 5, ..Limits::default() };
    check_stop(limits, fail_and_commit, StopCause::TooManyFailuresInRun { limit: 5 });
    let limits = Limits { no_progress_failures: 10, ..Limits::default() };
    check_stop(limits, fail_and_commit, StopCause::NoProgress { failures: 10, committed: 9 });
}

#[test]
fn without_recovery_the_first_failure_of_any_phase_stops_it() {
    let limits = Limits { recover: false, ..Limits::default() };
    for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Eval, Phase::Save, Phase::Load] {
        let mut guard = guard(everything(), limits);
        let Action::Stop(stop) = fail(&mut guard, 3, phase) else { panic!("{phase} was answered") };
        assert_eq!((stop.cause, stop.phase, stop.tried.len()), (StopCause::RecoveryOff, phase, 0));
    }
}

#[test]
fn a_stop_lists_what_was_tried() {
    let mut guard = guard(Offer::default(), Limits::default());
    let answers: Vec<Action> = (0..4).map(|_| fail(&mut guard, 7, Phase::Backward)).collect();
    let Some(Action::Stop(stop)) = answers.last() else { panic!("nothing is left") };
    let tried: Vec<_> = stop.tried.iter().map(|tried| (tried.rung, tried.measures.micro_batch.get())).collect();
    assert_eq!(tried, [(Rung::Clean, 4), (Rung::Split, 2), (Rung::Split, 1)]);
    assert_eq!(stop.to_string(), "memory ran out in backward of step 7, and nothing that is allowed is left to try");
}

#[test]
fn a_guard_survives_a_checkpoint() {
    let mut guard = guard(everything(), Limits::default());
    for phase in [Phase::Forward, Phase::Forward, Phase::Eval, Phase::Optimizer, Phase::Save] {
        let _ = fail(&mut guard, 1, phase);
    }
    let _ = guard.on(Signal::RetriesRose);
    let json = serde_json::to_string(&guard).expect("a guard can be written");
    let mut restored: Guard = serde_json::from_str(&json).expect("its own text");
    assert_eq!(restored, guard);
    assert_eq!(fail(&mut restored, 1, Phase::Forward), fail(&mut guard, 1, Phase::Forward));
}

#[test]
fn measures_of_a_schedule_are_guarded_like_its_own() {
    let mut guard = guard(everything(), Limits::default());
    let other = Measures { recompute: 1, ..Measures::new(micro_batch(2), micro_batch(2)) };
    guard.follow(other);
    assert_eq!(guard.measures(), other);
    assert_eq!(rung(&fail(&mut guard, 1, Phase::Forward)), (Rung::Clean, 2));
    assert_eq!(rung(&fail(&mut guard, 1, Phase::Forward)), (Rung::Split, 1));
}

/// A step that needed `peak` where the device had 1,000 bytes, 100 of them between steps, the rest in the reserve.
fn overflow(guard: &mut Guard, step: u64, phase: Phase, peak: u64) -> Action {
    let line = Line::at(Bytes(1000)).expect("not 0");
    let usage = Usage { resting: Bytes(100), peak: Bytes(peak), line };
    let answer = guard.on(Signal::Overflowed { step: Step(step), phase, usage });
    let _ = commit(guard, step, peak);
    answer
}

#[test]
fn an_overflow_of_cached_blocks_is_cleaned_first_and_split_if_it_comes_again() {
    let mut guard = guard(everything(), Limits::default());
    assert_eq!(rung(&overflow(&mut guard, 1, Phase::Forward, 900)), (Rung::Clean, 4));
    let _ = commit(&mut guard, 2, 900);
    assert_eq!(rung(&overflow(&mut guard, 3, Phase::Backward, 900)), (Rung::Clean, 4));
    assert_eq!(rung(&overflow(&mut guard, 4, Phase::Backward, 900)), (Rung::Split, 2));
    assert_eq!(guard.failures(), 0);
}

#[test]
fn tensors_that_are_more_than_the_device_holds_are_split_at_once_until_they_fit() {
    let start = Measures::new(micro_batch(64), micro_batch(64));
    let new = |offer| Guard::new(Ladder { offer, limits: Limits::default() }, start, micro_batch(64));
    let mut guard = new(everything());
    assert_eq!(rung(&overflow(&mut guard, 1, Phase::Forward, 1100)), (Rung::Split, 32));
    let mut guard = new(everything());
    // 64 samples need 7,200 above rest, 8 of them 900 and a byte of rounding.
    assert_eq!(rung(&overflow(&mut guard, 1, Phase::Forward, 7300)), (Rung::Split, 4));
    // Nothing that has to stay is made smaller by a smaller batch.
    let mut guard = new(everything());
    let line = Line::at(Bytes(1000)).expect("not 0");
    let usage = Usage { resting: Bytes(2000), peak: Bytes(2100), line };
    let answer = guard.on(Signal::Overflowed { step: Step(1), phase: Phase::Forward, usage });
    assert_eq!(rung(&answer), (Rung::Split, 1));
}

#[test]
fn a_micro_batch_that_overflowed_is_not_climbed_to_again() {
    let mut guard = guard(Offer::default(), Limits { climb_after: 2, ..Limits::default() });
    assert_eq!(rung(&overflow(&mut guard, 1, Phase::Forward, 1500)), (Rung::Split, 2));
    for step in 2..20 {
        assert_eq!(commit(&mut guard, step, 200), Action::Continue);
    }
}

#[test]
fn where_no_rung_is_left_it_goes_on_in_the_reserve() {
    let mut guard = guard(Offer { split: false, ..Offer::default() }, Limits::default());
    for step in 1..300 {
        let answer = overflow(&mut guard, step, Phase::Backward, 1500);
        assert_eq!(answer, Action::Continue);
    }
    assert!(!guard.has_stopped());
}

#[test]
fn an_overflow_of_evaluation_splits_evaluation_alone() {
    let mut guard = guard(everything(), Limits::default());
    let Action::Retry { measures, rung, reason } = overflow(&mut guard, 1, Phase::Eval, 1500) else {
        panic!("it is answered");
    };
    assert_eq!((measures.micro_batch.get(), measures.eval_micro_batch.get(), rung), (4, 1, Rung::Split));
    assert_eq!(reason, Reason::Overflowed { phase: Phase::Eval });
}

#[test]
fn an_overflow_of_the_update_is_cleaned_then_sharded_and_then_spilled() {
    let mut guard = guard(everything(), Limits::default());
    assert_eq!(rung(&overflow(&mut guard, 1, Phase::Optimizer, 900)), (Rung::Clean, 4));
    assert_eq!(rung(&overflow(&mut guard, 2, Phase::Optimizer, 900)), (Rung::Shard, 4));
    assert_eq!(rung(&overflow(&mut guard, 3, Phase::Optimizer, 900)), (Rung::Spill, 4));
}
