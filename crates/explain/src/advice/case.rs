//! What is known of a case, and the micro-batch that is expected to fit.

use lowtide_core::{Bytes, divisors};
use lowtide_log::StackFrame;
use lowtide_oom::Oom;

use crate::cause::Judgement;
use crate::culprit::allocation;
use crate::facts::{Facts, Key};
use crate::model::Model;
use crate::{Activity, Cause, Culprit};

/// All that is known of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) oom: &'a Oom,
    pub(crate) judgement: &'a Judgement,
    pub(crate) activity: Option<Activity>,
    pub(crate) before_first_step: bool,
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) model: Option<Model>,
    pub(crate) culprit: Option<&'a Culprit>,
    pub(crate) frames: &'a [StackFrame],
}

impl Case<'_> {
    pub(super) fn has(&self, cause: Cause) -> bool {
        self.judgement.cause == cause || self.judgement.contributing.contains(&cause)
    }

    pub(super) fn is_language_model(&self) -> bool {
        self.model.is_some() || self.culprit.is_some_and(|culprit| culprit.name.contains("logits"))
    }

    /// What may be used: nineteen twentieths of what this process can have.
    pub(super) fn target(&self) -> Option<Bytes> {
        self.judgement.available.map(|available| Bytes(available.get() / 20 * 19))
    }

    /// The need at the moment of failure, where the figures give it.
    pub(super) fn needed(&self) -> Option<Bytes> {
        // Where the allocator's figure is missing, the process's is a little more than it.
        Some(self.oom.allocated.or(self.oom.in_use)?.saturating_add(self.oom.requested?))
    }

    /// The peak after a change, from the model's before and after it; where the log shows that more was needed than the
    /// model's arithmetic says, only the difference counts.
    pub(super) fn after(&self, change: impl Fn(Model, u64) -> Bytes) -> Option<Bytes> {
        let (model, batch) = self.model.zip(self.facts.batch())?;
        let (before, after) = (model.peak(batch), change(model, batch));
        let excess = self.needed().map_or(Bytes::ZERO, |needed| needed.saturating_sub(before));
        Some(after.saturating_add(excess))
    }

    /// Why the configuration is not the one of this log, where it is not.
    pub(super) fn stale(&self) -> Option<String> {
        let (config, setting) = self.facts.find(Key::Batch)?;
        let batch = self.facts.batch()?;
        if let Some(logged) = self.facts.log.number(Key::Batch).filter(|logged| *logged != batch) {
            return Some(format!(
                "{}: {} is {batch}, but the log is of a run with {logged}: no patch for a configuration of another run",
                config.name,
                setting.path.join(".")
            ));
        }
        let sequence = self.facts.sequence()?;
        let expected = batch.saturating_mul(sequence);
        self.tokens_in_stack().filter(|tokens| *tokens != expected).map(|tokens| {
            format!(
                "{}: {batch} x {sequence} are {expected} tokens, but the log is of a run with {tokens} at once: no \
                 patch for a \
                 configuration of another run",
                config.name
            )
        })
    }

    /// Tokens computed at once, by the shape of the logits that compiled code in the stack asks for.
    fn tokens_in_stack(&self) -> Option<u64> {
        self.frames.iter().rev().find_map(|frame| {
            let (shape, _) = allocation(&frame.code)?;
            let is_logits = shape.len() >= 2 && shape.last().copied() == self.facts.vocabulary();
            is_logits
                .then(|| shape[..shape.len() - 1].iter().fold(1_u64, |product, size| product.saturating_mul(*size)))
        })
    }

    /// The largest micro-batch that divides the batch and is expected to fit, with its peak.
    pub(super) fn micro_batch(&self) -> Option<(u64, Option<Bytes>)> {
        let batch = self.facts.batch().filter(|batch| *batch > 1)?;
        let fixed =
            self.model.map(|model| model.fixed()).or_else(|| Some(self.facts.log.parameters?.saturating_mul(16)));
        let mut chosen = None;
        for micro in divisors(batch).into_iter().rev().skip(1) {
            let by_model = self.model.map(|model| model.peak(micro));
            let by_log = self.needed().zip(fixed).map(|(needed, fixed)| {
                let moving = needed.get().saturating_sub(fixed);
                Bytes(fixed.saturating_add((u128::from(moving) * u128::from(micro) / u128::from(batch)) as u64))
            });
            let peak = match (by_model, by_log) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
            // Without the fixed part, all of what was in use is taken to go down with the batch.
            let expected = peak.or_else(|| {
                self.needed()
                    .map(|needed| Bytes((u128::from(needed.get()) * u128::from(micro) / u128::from(batch)) as u64))
            });
            chosen = Some((micro, peak));
            match (expected, self.target()) {
                (Some(expected), Some(target)) if expected > target => {}
                _ => break,
            }
        }
        chosen
    }
}
