//! What the guard and the run did, in one plain sentence an event.

use super::numerics::listed;
use crate::{Bytes, CommandOutcome, Ending, Event, Line, Phase, Reason, Relocation, Rung, Step, grouped};

impl Event {
    /// It in one sentence; committed steps and samples of memory have none.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        Some(match self {
            Self::StepDone { .. } | Self::Memory { .. } | Self::CommandMemory { .. } => return None,
            Self::RunStarted { workload, device, batch, line, parameters, resumed_at, .. } => {
                let begun = match resumed_at {
                    None => "Training began".to_owned(),
                    Some(step) => format!("Training resumed from the checkpoint of step {step}"),
                };
                format!(
                    "{begun}: {workload} with {} parameters on {device}, {batch} samples a step, {}.",
                    grouped(*parameters),
                    under(*line)
                )
            }
            Self::NumericsChanged { step, changes } => {
                format!("From step {step} on bits may be others than those of an unbroken run: {}.", listed(changes))
            }
            Self::Probed { micro_batch, peak: Some(peak), .. } => {
                format!("A micro-batch of {micro_batch} was tried out and needed {peak}.")
            }
            Self::Probed { micro_batch, peak: None, .. } => {
                format!("A micro-batch of {micro_batch} was tried out, and memory ran out.")
            }
            Self::Sized { measures } => format!("Training starts with {}.", measures.in_phase(Phase::Forward)),
            Self::OutOfMemory { step, phase, requested, limit, allocated, .. } => {
                format!("Memory ran out in {} of step {step}{}.", part(*phase), figures(*requested, *allocated, *limit))
            }
            Self::Overflowed { step, phase, bytes, reserve, seconds, .. } => {
                let smaller = self.smaller_batch().map_or(String::new(), |words| format!(" ({words})"));
                format!(
                    "Without the reserve, memory would have run out in {} of step {step}: {bytes} of {reserve} were used for {seconds:.1} s{smaller}.",
                    part(*phase)
                )
            }
            Self::RungTaken { step, rung, measures, reason: Reason::Overflowed { phase } } => match rung {
                Rung::Clean => {
                    format!("After step {step} the guard released cached blocks, so that the next one fits.")
                }
                rung => {
                    let (rung, measures) = (done(*rung), measures.in_phase(*phase));
                    format!("After step {step} the guard {rung} ({measures}), so that the next one fits.")
                }
            },
            Self::RungTaken { step, rung, measures, reason } => {
                let phase = reason.phase().unwrap_or(Phase::Forward);
                match rung {
                    Rung::Clean => format!("The guard released cached blocks and ran step {step} again: {reason}."),
                    Rung::Stop => format!("The guard gave up at step {step}: {reason}."),
                    rung => {
                        let (rung, measures) = (done(*rung), measures.in_phase(phase));
                        format!("The guard {rung} ({measures}) and ran step {step} again: {reason}.")
                    }
                }
            }
            Self::Climbed { step, measures, reason } => {
                format!(
                    "After step {step} the guard tries more at once ({}): {reason}.",
                    measures.in_phase(Phase::Forward)
                )
            }
            Self::Cleaned { step, freed, .. } => {
                format!("Cached blocks were released at step {step}; {freed} came back.")
            }
            Self::Evaluated { step, loss, metrics, approximate, .. } => {
                let metrics = if metrics.is_empty() { String::new() } else { format!(", {metrics}") };
                let about = if *approximate { " (approximately: in tiles)" } else { "" };
                format!("The evaluation after step {step} gave a loss of {loss:.4}{metrics}{about}.")
            }
            Self::MetricMissing { step, metric, reason } => {
                format!("The evaluation after step {step} is without {metric}: {reason}.")
            }
            Self::StoppedEarly { step, evaluations, best } => {
                let best = best.map_or(String::new(), |best| format!(" than {best:.4}"));
                format!(
                    "The run ends early after step {step}: {evaluations} evaluations in a row were no better{best}."
                )
            }
            Self::TileHalved { step, tile } => {
                format!(
                    "After step {step} frames are evaluated in tiles of {tile} x {tile} pixels, because memory ran out."
                )
            }
            Self::EvaluationFailed { step, stop } => {
                format!("The evaluation after step {step} was given up, and training goes on: {stop}.")
            }
            Self::Saved { step, path, bytes, .. } => {
                format!("The state after step {step} was saved in {path} ({bytes}).")
            }
            Self::Skipped { step, scale } => {
                format!(
                    "The update of step {step} was left out because gradients overflowed; the loss scale is {scale}."
                )
            }
            Self::Relocated { step, folder, cause } => match cause {
                Relocation::Moved => format!("After step {step} the run folder was moved to {folder}."),
                Relocation::Deleted => {
                    format!("After step {step} the run folder was deleted; the state was saved again in {folder}.")
                }
            },
            Self::Note { step, message } => format!("After step {step}: {message}."),
            Self::CommandStarted { start, command, micro_batch, accumulation, resumed_from } => {
                let start = if *start <= 1 { "The command was started".to_owned() } else { format!("Start {start}") };
                let from = resumed_from.as_ref().map_or(String::new(), |path| format!(" from {path}"));
                let batch = micro_batch.map_or(String::new(), |micro| {
                    let times = accumulation.map_or(String::new(), |accumulation| format!(" x {accumulation}"));
                    format!(" with micro-batch {micro}{times}")
                });
                format!("{start}{from}{batch}: {command}")
            }
            Self::CommandEnded { start, step, seconds, outcome, cause } => {
                let at = if *step == Step::ZERO { String::new() } else { format!(" at step {step}") };
                let cause = cause.as_ref().map_or(String::new(), |cause| format!(": {cause}"));
                let end = match outcome {
                    CommandOutcome::Finished => "finished",
                    CommandOutcome::Interrupted => "was interrupted",
                    CommandOutcome::OutOfMemory => "ran out of memory",
                    CommandOutcome::Failed => "failed",
                };
                format!("Start {start} {end} after {seconds:.1} s{at}{cause}.")
            }
            Self::Stopped { step: Step::ZERO, ending: Ending::Error { message } } => {
                format!("The run ended with an error: {message}")
            }
            Self::Stopped { step: Step::ZERO, ending: Ending::Finished } => "The run finished.".to_owned(),
            Self::Stopped { step, ending } => match ending {
                Ending::Finished => format!("The run finished after step {step}."),
                Ending::Interrupted => format!("The run was asked to end and stopped after step {step}."),
                Ending::Line { stop } => format!("The run stopped after step {step}: {stop}."),
                Ending::Error { message } => format!("The run ended after step {step} with an error: {message}"),
            },
        })
    }

    /// How much smaller a batch would have needed no reserve, where figures tell: what is above rest grows with the batch.
    pub(super) fn smaller_batch(&self) -> Option<String> {
        let Self::Overflowed { needed: Some(needed), limit: Some(limit), resting: Some(resting), .. } = self else {
            return None;
        };
        if needed <= limit {
            return Some("without cached blocks it fits".to_owned());
        }
        let above_rest = needed.saturating_sub(*resting).get();
        let too_much = needed.saturating_sub(*limit).get();
        let percent = (too_much as f64 / above_rest as f64 * 100.0).ceil();
        (percent < 100.0).then(|| format!("a batch {percent} % smaller would fit"))
    }

    /// What ran out of memory and what was done about it, in Markdown, for those who look at curves; other events have none.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        match self {
            Self::OutOfMemory { step, phase, message, .. } => {
                Some(format!("Memory ran out in {phase} of step {step}.\n\n{message}"))
            }
            Self::RungTaken { step, rung, measures, reason } => {
                let phase = reason.phase().unwrap_or(Phase::Forward);
                Some(format!("Step {step} was tried again after: {rung} ({}).", measures.in_phase(phase)))
            }
            Self::EvaluationFailed { step, stop } => {
                Some(format!("The evaluation after step {step} was left out: {stop}."))
            }
            _ => None,
        }
    }
}

fn under(line: Line) -> String {
    line.limit().map_or("without a memory limit".to_owned(), |limit| format!("under a memory limit of {limit}"))
}

fn part(phase: Phase) -> &'static str {
    match phase {
        Phase::Load => "loading",
        Phase::Forward => "the forward pass",
        Phase::Backward => "the backward pass",
        Phase::Optimizer => "the update",
        Phase::Eval => "the evaluation",
        Phase::Save => "saving",
    }
}

fn figures(requested: Option<Bytes>, allocated: Option<Bytes>, limit: Option<Bytes>) -> String {
    let told = [
        // What was made to fail on purpose asked for nothing.
        requested.filter(|requested| !requested.is_zero()).map(|requested| format!("{requested} were asked for")),
        allocated.map(|allocated| format!("{allocated} were in use")),
        limit.map(|limit| format!("the limit is {limit}")),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) }
}

fn done(rung: Rung) -> &'static str {
    match rung {
        Rung::Clean => "released cached blocks",
        Rung::Split => "split the batch",
        Rung::ChunkLoss => "cut the loss into pieces",
        Rung::Recompute => "chose to recompute activations",
        Rung::Shard => "divided the optimizer state among the ranks",
        Rung::Spill => "moved more to host memory",
        Rung::Narrow => "took a narrower type",
        Rung::Stop => "gave up",
    }
}
