//! The state machine that answers out-of-memory errors.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::failures::{Episode, Strikes, Work};
use crate::{
    Action, Bytes, Ladder, Measures, MicroBatch, Phase, Reason, Rung, RungAttempt, Signal, Step, Stop, StopCause, Usage,
};

/// Decides what to do when memory runs out: it hears [`Signal`]s and answers with [`Action`]s.
///
/// **A failure in forward or backward.** The first one of a step is answered by cleaning, since a passing squeeze or
/// fragmentation is the cheapest thing to mend and cleaning changes nothing else. From then on each failure of the same
/// step goes one rung down: halve the micro-batch down to 1, double the loss chunks, recompute one level more, shard the
/// optimizer's state over ranks, spill one level more, narrow, stop. Cleaning is passed over where it cannot help for long: the measures have failed twice, or
/// cleaning was the answer for [`Limits::cleans`](crate::Limits::cleans) steps of the present stretch already.
///
/// **Failed twice.** A failure of forward or backward counts against the micro-batch together with all other training
/// measures. A step committed with exactly the same measures forgives it. At two failures that are not forgiven, the
/// micro-batch and every larger one are never taken again with the same other measures. Going down still leaves a
/// micro-batch after one failure where the step was cleaned before; that one may be tried once more when climbing.
///
/// **A failure in the optimizer.** Clean, then shard, then spill level by level, then stop. The optimizer's memory does not depend on the
/// batch, so it never splits, and its failures do not count against the micro-batch.
///
/// **A failure in evaluation.** Clean once per evaluation, then halve the evaluation's own micro-batch, then chunk its loss,
/// then give up this one evaluation: a missing figure is no reason to end a run. Training's measures never change, and
/// these failures do not count against the limits of training. Evaluation does not climb back.
///
/// **A failure while saving or loading.** Clean and try again, a limited number of times, then stop.
///
/// **Climbing back.** After [`Limits::climb_after`](crate::Limits::climb_after) committed steps without a failure or
/// warning the micro-batch is doubled, up to the ceiling, if the forecast from the last step leaves the margin free
/// under the line and it was not ruled out; else it grows to the largest size between of which both hold. Only the
/// micro-batch climbs; the other measures stay for the rest of the run.
///
/// **An overflow** into the reserve of host memory ends nothing, so its answer holds from the next step on. Where the tensors
/// alone were more than the device holds, the micro-batch is halved until the forecast fits, at once; else cached blocks were in
/// the way, and it is cleaned first, as after a failure, and one rung down if the next step overflows again. The micro-batch that was
/// left is not taken again. Where no rung is left, it goes on as it is: slow, and alive. Overflows are no failures.
///
/// **Without recovery.** Where [`Limits::recover`](crate::Limits::recover) is off, the first failure stops the run, in
/// evaluation too.
///
/// **It ends.** Whatever fails in training, a run is stopped by the end of the ladder, by its limits, or because it makes no progress;
/// after that every signal is answered with the same [`Action::Stop`].
///
/// The answers depend on the signals alone, and the whole state can be written into a checkpoint and read back, so that a
/// resumed run decides like an unbroken one. A signal without a failure costs a few comparisons and allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    ladder: Ladder,
    measures: Measures,
    ceiling: MicroBatch,
    strikes: Strikes,
    episode: Episode,
    /// Failures of the run, those of evaluation left out.
    failures: u64,
    /// Failures of evaluation.
    eval_failures: u64,
    /// Steps committed in the run.
    committed: u64,
    /// Steps committed since the last failure of training, warning or climb.
    calm_steps: u32,
    /// Steps of this stretch that cleaning answered.
    cleans: u32,
    /// The last step that overflowed.
    #[serde(default)]
    overflowed_at: Option<Step>,
    /// Whether an evaluation overflowed and was cut for it.
    #[serde(default)]
    is_eval_cut: bool,
    /// The value of `committed` at the last cleaning for a warning.
    warned_at: Option<u64>,
    /// The value of `committed` at each of the last failures, the oldest first.
    recent: VecDeque<u64>,
    stopped: Option<Stop>,
}

impl Guard {
    /// A guard that starts with these measures and climbs up to `ceiling`.
    ///
    /// The ceiling is the micro-batch the user set, or the whole batch where the run may choose; one below the first
    /// micro-batch counts as the first micro-batch. `start` may already hold measures that the ladder does not offer.
    #[must_use]
    pub fn new(ladder: Ladder, start: Measures, ceiling: MicroBatch) -> Self {
        Self {
            ladder,
            measures: start,
            ceiling: ceiling.max(start.micro_batch),
            strikes: Strikes::default(),
            episode: Episode::default(),
            failures: 0,
            eval_failures: 0,
            committed: 0,
            calm_steps: 0,
            cleans: 0,
            overflowed_at: None,
            is_eval_cut: false,
            warned_at: None,
            recent: VecDeque::new(),
            stopped: None,
        }
    }

    /// The measures in force.
    #[must_use]
    pub fn measures(&self) -> Measures {
        self.measures
    }

    /// How many failures it has been told of, in all phases.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.saturating_add(self.eval_failures)
    }

    /// Whether it has answered with [`Action::Stop`].
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether it walks this ladder and climbs up to this ceiling: if so, a guard from a checkpoint can go on.
    #[must_use]
    pub fn follows(&self, ladder: &Ladder, ceiling: MicroBatch) -> bool {
        self.ladder == *ladder && self.ceiling == ceiling
    }

    /// A batch larger than the ceiling came. Where the micro-batch is still the ceiling, nothing ever had to be made
    /// smaller, and it grows too; else only climbing may reach it. A smaller ceiling changes nothing.
    pub fn raise_ceiling(&mut self, ceiling: MicroBatch) {
        if ceiling <= self.ceiling {
            return;
        }
        if self.measures.micro_batch == self.ceiling && !self.strikes.is_out(ceiling) {
            self.measures.micro_batch = ceiling;
        }
        self.ceiling = ceiling;
    }

    /// A batch of evaluation came that is larger than any before. As long as none failed or overflowed, it is computed at once.
    pub fn raise_eval(&mut self, micro_batch: MicroBatch) {
        if self.eval_failures == 0 && !self.is_eval_cut {
            self.measures.eval_micro_batch = self.measures.eval_micro_batch.max(micro_batch);
        }
    }

    /// Puts the measures of a schedule in force. What failed with other measures than its micro-batch is forgotten.
    pub fn follow(&mut self, measures: Measures) {
        if measures.with_micro_batch(self.measures.micro_batch) != self.measures {
            self.strikes.measures_changed();
        }
        self.measures = measures;
    }

    /// Hears what happened and says what to do next.
    pub fn on(&mut self, signal: Signal) -> Action {
        if let Some(stop) = &self.stopped {
            return Action::Stop(stop.clone());
        }
        match signal {
            Signal::Failed { step, phase } => self.failed(step, phase),
            Signal::Committed { step, usage } => self.committed(step, usage),
            Signal::Overflowed { step, phase, usage } => self.overflowed(step, phase, usage),
            Signal::Evaluated => self.evaluated(),
            Signal::RetriesRose => self.retries_rose(),
        }
    }

    fn failed(&mut self, step: Step, phase: Phase) -> Action {
        if self.episode.step != step {
            self.episode = Episode::at(step);
        }
        if !self.ladder.limits.recover {
            self.count_failure();
            return self.stop(phase, StopCause::RecoveryOff);
        }
        let answer = match Work::of(phase) {
            Work::Eval => return self.eval_failed(phase),
            Work::Compute => Self::compute_failed,
            Work::Optimizer => Self::optimizer_failed,
            Work::Checkpoint => Self::checkpoint_failed,
        };
        self.count_failure();
        match self.limit_passed() {
            Some(cause) => self.stop(phase, cause),
            None => answer(self, phase),
        }
    }

    fn compute_failed(&mut self, phase: Phase) -> Action {
        let out = self.strikes.compute_failed(self.measures.micro_batch);
        self.answer_training(phase, out, self.ladder.below_compute(self.measures))
    }

    fn optimizer_failed(&mut self, phase: Phase) -> Action {
        let out = self.strikes.optimizer_failed();
        self.answer_training(phase, out, self.ladder.below_optimizer(self.measures))
    }

    fn answer_training(&mut self, phase: Phase, out: bool, below: Option<(Rung, Measures)>) -> Action {
        self.calm_steps = 0;
        let first_clean = self.episode.cleaned.insert(Work::of(phase));
        let worn_out = below.is_some() && self.cleans >= self.ladder.limits.cleans;
        let reason = match (out, first_clean, worn_out) {
            (true, ..) => Reason::FailedTwice { phase },
            (false, false, _) => Reason::StillFailing { phase },
            (false, true, true) => Reason::CleaningWornOut { phase },
            (false, true, false) => {
                self.cleans = self.cleans.saturating_add(1);
                return self.retry(phase, Rung::Clean, self.measures, Reason::FirstFailure { phase });
            }
        };
        let Some((rung, measures)) = below else {
            return self.stop(phase, StopCause::LadderExhausted);
        };
        if worn_out {
            self.strikes.rule_out(self.measures.micro_batch);
        }
        if rung != Rung::Split {
            self.strikes.measures_changed();
        }
        self.cleans = 0;
        self.retry(phase, rung, measures, reason)
    }

    fn eval_failed(&mut self, phase: Phase) -> Action {
        self.eval_failures = self.eval_failures.saturating_add(1);
        let out = self.strikes.eval_failed();
        let first_clean = self.episode.cleaned.insert(Work::Eval);
        if first_clean && !out {
            return self.retry(phase, Rung::Clean, self.measures, Reason::FirstFailure { phase });
        }
        let Some((rung, measures)) = self.ladder.below_eval(self.measures) else {
            return self.give_up_evaluation(phase);
        };
        self.strikes.forgive_eval();
        let reason = if out { Reason::FailedTwice { phase } } else { Reason::StillFailing { phase } };
        self.retry(phase, rung, measures, reason)
    }

    /// Ends an evaluation that no measure can help; the next one starts with a clean slate.
    fn give_up_evaluation(&mut self, phase: Phase) -> Action {
        let (tried, rest) = self.episode.tried.drain(..).partition(|tried| tried.phase == phase);
        self.episode.tried = rest;
        let _ = self.evaluated();
        Action::GiveUp(self.last_words(phase, StopCause::LadderExhausted, tried))
    }

    fn checkpoint_failed(&mut self, phase: Phase) -> Action {
        self.episode.checkpoint_failures = self.episode.checkpoint_failures.saturating_add(1);
        if self.episode.checkpoint_failures > self.ladder.limits.checkpoint_retries {
            return self.stop(phase, StopCause::LadderExhausted);
        }
        let first_clean = self.episode.cleaned.insert(Work::Checkpoint);
        let reason = if first_clean { Reason::FirstFailure { phase } } else { Reason::StillFailing { phase } };
        self.retry(phase, Rung::Clean, self.measures, reason)
    }

    fn committed(&mut self, step: Step, usage: Usage) -> Action {
        self.committed = self.committed.saturating_add(1);
        self.calm_steps = self.calm_steps.saturating_add(1);
        self.strikes.committed(self.measures.micro_batch);
        if self.episode.step == step {
            self.episode = Episode::at(step);
        }
        let climb_after = self.ladder.limits.climb_after;
        if climb_after == 0 || self.calm_steps < climb_after {
            return Action::Continue;
        }
        self.cleans = 0;
        self.climb(usage)
    }

    fn overflowed(&mut self, step: Step, phase: Phase, usage: Usage) -> Action {
        let again = self.overflowed_at.is_some_and(|at| at == step || at.next() == step);
        self.overflowed_at = Some(step);
        let work = Work::of(phase);
        if work != Work::Eval {
            self.calm_steps = 0;
        }
        let is_too_large = usage.line.limit().is_some_and(|limit| usage.peak > limit);
        let is_worn_out = self.cleans >= self.ladder.limits.cleans;
        let reason = Reason::Overflowed { phase };
        let below = self.below_overflow(work, usage);
        if !(is_too_large || again || is_worn_out) || work == Work::Checkpoint {
            self.cleans = self.cleans.saturating_add(1);
            return Action::Retry { rung: Rung::Clean, measures: self.measures, reason };
        }
        let Some((rung, measures)) = below.filter(|_| self.ladder.limits.recover) else {
            return Action::Continue;
        };
        match work {
            Work::Compute if rung == Rung::Split => self.strikes.rule_out(self.measures.micro_batch),
            Work::Compute | Work::Optimizer => self.strikes.measures_changed(),
            Work::Eval => self.is_eval_cut = true,
            Work::Checkpoint => {}
        }
        self.cleans = 0;
        self.measures = measures;
        Action::Retry { rung, measures, reason }
    }

    /// The next rung down, or the one of those that only split which the forecast says to fit.
    fn below_overflow(&self, work: Work, usage: Usage) -> Option<(Rung, Measures)> {
        let step_down = |now: Measures| match work {
            Work::Compute => self.ladder.below_compute(now),
            Work::Optimizer => self.ladder.below_optimizer(now),
            Work::Eval => self.ladder.below_eval(now),
            Work::Checkpoint => None,
        };
        let samples = |measures: Measures| match work {
            Work::Eval => measures.eval_micro_batch,
            _ => measures.micro_batch,
        };
        let (mut rung, mut measures) = step_down(self.measures)?;
        while rung == Rung::Split
            && let forecast = usage.forecast(samples(self.measures), samples(measures))
            && !usage.line.admits(forecast, Bytes::ZERO)
            && let Some((Rung::Split, smaller)) = step_down(measures)
        {
            (rung, measures) = (Rung::Split, smaller);
        }
        Some((rung, measures))
    }

    fn climb(&mut self, usage: Usage) -> Action {
        let Some((micro_batch, forecast)) = self.larger_that_fits(usage) else {
            return Action::Continue;
        };
        self.calm_steps = 0;
        self.measures.micro_batch = micro_batch;
        Action::Climb { measures: self.measures, reason: Reason::Room { forecast, limit: usage.line.limit() } }
    }

    /// The largest micro-batch, up to twice this one, that may be tried and should fit, with its forecast.
    fn larger_that_fits(&self, usage: Usage) -> Option<(MicroBatch, Bytes)> {
        let now = self.measures.micro_batch;
        let double = now.doubled(self.ceiling).filter(|_| self.ladder.offer.split)?;
        std::iter::successors(Some(double), |size| size.next_smaller(self.ceiling))
            .take_while(|size| *size > now)
            .filter(|size| !self.strikes.is_out(*size))
            .map(|size| (size, usage.forecast(now, size)))
            .find(|(_, forecast)| usage.admits(*forecast, self.ladder.limits.climb_margin))
    }

    fn evaluated(&mut self) -> Action {
        self.strikes.forgive_eval();
        self.episode.cleaned.remove(&Work::Eval);
        Action::Continue
    }

    fn retries_rose(&mut self) -> Action {
        self.calm_steps = 0;
        let rest = u64::from(self.ladder.limits.warning_rest);
        if self.warned_at.is_some_and(|at| self.committed.saturating_sub(at) < rest) {
            return Action::Continue;
        }
        self.warned_at = Some(self.committed);
        Action::Clean { reason: Reason::RetriesRose }
    }

    fn count_failure(&mut self) {
        self.episode.failures = self.episode.failures.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        self.recent.push_back(self.committed);
        while self.recent.len() as u64 > u64::from(self.ladder.limits.no_progress_failures) {
            self.recent.pop_front();
        }
    }

    fn limit_passed(&self) -> Option<StopCause> {
        let limits = &self.ladder.limits;
        if self.episode.failures > limits.failures_per_step {
            return Some(StopCause::TooManyFailuresInStep { limit: limits.failures_per_step });
        }
        if self.failures > u64::from(limits.failures_per_run) {
            return Some(StopCause::TooManyFailuresInRun { limit: limits.failures_per_run });
        }
        let failures = limits.no_progress_failures;
        let committed = self.committed.saturating_sub(*self.recent.front()?);
        let no_progress = self.recent.len() as u64 == u64::from(failures) && committed < u64::from(failures);
        no_progress.then_some(StopCause::NoProgress { failures, committed })
    }

    fn retry(&mut self, phase: Phase, rung: Rung, measures: Measures, reason: Reason) -> Action {
        self.measures = measures;
        self.episode.tried.push(RungAttempt { phase, rung, measures });
        Action::Retry { rung, measures, reason }
    }

    fn stop(&mut self, phase: Phase, cause: StopCause) -> Action {
        let tried = std::mem::take(&mut self.episode.tried);
        let stop = self.last_words(phase, cause, tried);
        self.stopped = Some(stop.clone());
        Action::Stop(stop)
    }

    fn last_words(&self, phase: Phase, cause: StopCause, tried: Vec<RungAttempt>) -> Stop {
        Stop { step: self.episode.step, phase, cause, measures: self.measures, tried }
    }
}
