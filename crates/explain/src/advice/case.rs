//! What is known of a case, and the micro-batch that is expected to fit.

use lowtide_core::{Bytes, divisors};
use lowtide_log::StackFrame;
use lowtide_oom::{DeviceKind, Engine, Oom, Place};

use crate::cause::Judgement;
use crate::culprit::allocation;
use crate::facts::{Facts, Key};
use crate::log::{Flag, Narrative, Sign, WeightBits};
use crate::model::Model;
use crate::{Activity, Cause, Culprit, Lever};

/// All that is known of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) oom: &'a Oom,
    /// The message, and what else the log says of the event.
    pub(crate) message: &'a str,
    pub(crate) judgement: &'a Judgement,
    pub(crate) activity: Option<Activity>,
    pub(crate) before_first_step: bool,
    /// The last step before it.
    pub(crate) step: Option<u64>,
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) model: Option<Model>,
    pub(crate) culprit: Option<&'a Culprit>,
    pub(crate) frames: &'a [StackFrame],
}

/// More than all but the cards of data centres have.
const LARGE_CARD: Bytes = Bytes::from_gib(48);
/// Cards of up to 4 GiB.
const SMALL_CARD: Bytes = Bytes::from_gib(4);
/// Cards of up to 2 GiB.
const TINY_CARD: Bytes = Bytes::from_gib(2);

/// Why a micro-batch has the size it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// What there is and what the step needs are known.
    Figures,
    /// What there is is not known: it fits into what was handed out already.
    Sure,
    /// Only that the whole batch did not fit is known.
    Guess,
}

/// A micro-batch, and the peak that is expected with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Micro {
    pub(crate) samples: u64,
    pub(crate) peak: Option<Bytes>,
    pub(crate) basis: Basis,
}

impl Case<'_> {
    pub(super) fn has(&self, cause: Cause) -> bool {
        self.judgement.cause == cause || self.judgement.contributing.contains(&cause)
    }

    /// What people tell of the run in sentences.
    pub(super) fn narrative(&self) -> Narrative {
        self.facts.log.narrative
    }

    pub(super) fn shows(&self, sign: Sign) -> bool {
        self.facts.log.signs.has(sign)
    }

    /// Whether weights are in fewer than 16 bits, by what is set or by the libraries for it.
    pub(super) fn has_quantized_weights(&self) -> bool {
        self.shows(Sign::Quantized) || self.facts.flags.weight_bits() != WeightBits::All
    }

    /// Whether a frame of the stack has one of the words in its file, function or code.
    pub(super) fn passes(&self, words: &[&str]) -> bool {
        self.frames.iter().any(|frame| {
            words.iter().any(|word| {
                frame.code.contains(word)
                    || frame.function.contains(word)
                    || frame.file.replace('\\', "/").contains(word)
            })
        })
    }

    /// Whether somebody trains, as far as the log tells: words of a training are in the names of models that others use, too.
    pub(super) fn trains(&self) -> bool {
        let (told, signs) = (self.narrative(), &self.facts.log.signs);
        let makes_pictures = (self.shows(Sign::Comfy) || self.shows(Sign::Webui)) && !self.computes_gradients();
        let is_shown = signs.has_surely(Sign::Training) || signs.has(Sign::Training) && !told.infers;
        told.trains || self.activity == Some(Activity::Optimizer) || is_shown && !makes_pictures
    }

    /// Whether weights were on their way; what computes has them.
    pub(super) fn loads(&self) -> bool {
        let computes = self.frames.last().is_some_and(|frame| {
            let words = [" model(", "self.model(", "predict"];
            frame.function == "forward" || words.iter().any(|words| frame.code.contains(words))
        });
        self.activity == Some(Activity::Loading) && !computes
    }

    pub(super) fn is_language_model(&self) -> bool {
        let has_logits = self.culprit.is_some_and(|culprit| culprit.name.contains("logits"));
        // A segmentation has logits for each pixel.
        self.model.is_some() || has_logits && !self.passes(&["seg_logit"])
    }

    /// Whether one request alone is at least half of the device: then it is what is computed at once that is too much.
    pub(super) fn is_one_large_request(&self) -> bool {
        self.oom.requested.zip(self.oom.capacity).is_some_and(|(asked, capacity)| asked.get() > capacity.get() / 2)
    }

    /// Whether one request alone is more than the device has.
    pub(super) fn exceeds_the_card(&self) -> bool {
        self.oom.requested.zip(self.oom.capacity).is_some_and(|(asked, capacity)| asked > capacity)
    }

    /// Whether one request is more than the device has, or than most have where that is not known.
    pub(super) fn is_larger_than_most_cards(&self) -> bool {
        let most = self.oom.capacity.or(self.facts.log.cards.total).unwrap_or(LARGE_CARD);
        self.oom.requested.is_some_and(|asked| asked > most)
    }

    /// Whether one request is at least an eighth of the device.
    pub(super) fn is_large_request(&self) -> bool {
        self.oom.requested.zip(self.oom.capacity).is_some_and(|(asked, capacity)| asked.get() > capacity.get() / 8)
    }

    /// Whether a request is known and less than a part in 32 of the device.
    pub(super) fn is_small_request(&self) -> bool {
        self.oom.requested.zip(self.oom.capacity).is_some_and(|(asked, capacity)| asked.get() < capacity.get() / 32)
    }

    /// Whether the card is one on which few models are trained, by the figures or by what people tell of it.
    pub(super) fn is_small_card(&self) -> bool {
        let told = self.narrative().card_gigabytes.map(Bytes::from_gib);
        self.oom.capacity.or(told).is_some_and(|capacity| capacity <= SMALL_CARD)
    }

    /// Whether the card has 2 GiB or less, by the figures or by what people tell of it.
    pub(super) fn is_tiny_card(&self) -> bool {
        let told = self.narrative().card_gigabytes.map(Bytes::from_gib);
        self.oom.capacity.or(told).is_some_and(|capacity| capacity <= TINY_CARD)
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
        let after = after.saturating_add(excess);
        // Without activations it is the least that it comes to, which tells only where that is too much.
        let is_known = model.is_whole() || self.target().is_some_and(|target| after > target);
        is_known.then_some(after)
    }

    /// The need of a whole step: what there was at the moment of failure, or more by the model's arithmetic.
    pub(super) fn need_of_a_step(&self) -> Option<Bytes> {
        let by_model = self.model.zip(self.facts.batch()).map(|(model, batch)| model.peak(batch));
        Some(self.needed()?.max(by_model.unwrap_or_default()))
    }

    /// The least that a step takes: by the figures, or what stays from step to step.
    pub(super) fn least_need(&self) -> Option<Bytes> {
        let fixed = self.fixed().map(Bytes).filter(|_| self.counts_parameters() && !self.has_room_for_fixed());
        self.need_of_a_step().max(fixed)
    }

    /// What a step of training takes by settings and counts, whatever the figures of the message: an estimate.
    pub(crate) fn estimate_of_a_step(&self) -> Option<Bytes> {
        if !matches!(self.activity, None | Some(Activity::Training | Activity::Optimizer)) {
            return None;
        }
        let fixed = || {
            let is_shared_out = self.facts.log.is_group || self.shows(Sign::DeepSpeed) || self.has_room_for_fixed();
            let is_trained = self.trains() && (self.model.is_some() || self.facts.log.trained.is_some());
            let is_alone = self.oom.place == Place::Device
                && is_trained
                && !is_shared_out
                && self.step.is_none_or(|step| step < 2);
            self.fixed().map(Bytes).filter(|_| is_alone)
        };
        self.model.zip(self.facts.batch()).map(|(model, batch)| model.peak(batch)).or_else(fixed)
    }

    /// Whether the model's arithmetic says that a step takes more than there is.
    pub(super) fn is_need_by_the_model(&self) -> bool {
        let by_model = self.model.zip(self.facts.batch()).map(|(model, batch)| model.peak(batch));
        by_model.zip(self.target()).is_some_and(|(peak, target)| peak > target)
    }

    /// Whether the log or the settings count parameters; a name alone does not say what is trained.
    pub(super) fn counts_parameters(&self) -> bool {
        let log = self.facts.log;
        // What DeepSpeed shares out, only its stage tells.
        let is_open = self.shows(Sign::DeepSpeed) && log.switches.sharing.stage.is_none();
        self.model.is_some() || !is_open && (log.parameters.is_some() || log.trained.is_some())
    }

    /// Whether the device's memory is the machine's: PyTorch on one of Apple's chips.
    pub(super) fn shares_memory_with_host(&self) -> bool {
        self.oom.device_kind == Some(DeviceKind::Mps) && self.oom.engine != Engine::Mlx
    }

    /// The module of PyTorch that has calls for the device.
    pub(super) fn torch_device(&self) -> &'static str {
        match self.oom.device_kind {
            Some(DeviceKind::Mps) => "torch.mps",
            Some(DeviceKind::Xpu) => "torch.xpu",
            Some(DeviceKind::Npu) => "torch.npu",
            _ => "torch.cuda",
        }
    }

    /// Whether a lever does nothing on this device: where there is one memory and one chip, nothing goes to the host or to another
    /// card, and paged moments are CUDA's.
    pub(super) fn has_no_use_for(&self, lever: Lever) -> bool {
        let needs_two = matches!(
            lever,
            Lever::Offload
                | Lever::Spill
                | Lever::Shard
                | Lever::MoreCards
                | Lever::OtherCard
                | Lever::SmallerOptimizer
        );
        needs_two && self.shares_memory_with_host()
    }

    /// Whether a run has turned on already what a lever turns on.
    pub(super) fn has_on(&self, lever: Lever) -> bool {
        let switches = self.facts.log.switches;
        match lever {
            Lever::Shard => switches.sharing.stage == Some(3),
            Lever::Spill => switches.sharing.offloads_moments,
            Lever::SmallerOptimizer => switches.eight_bit_moments,
            Lever::AttentionKernel => self.facts.flags.is_on(Flag::FusedAttention),
            Lever::Recompute => self.facts.recomputes(),
            Lever::ChunkedLoss => self.facts.chunks_loss(),
            // Of a model that is only used it is the weights.
            Lever::Precision if self.trains() => self.facts.computes_in_half() && !self.facts.has_no_bf16(),
            Lever::Precision => switches.half_compute.is_some(),
            _ => false,
        }
    }

    /// Parameters that are trained, by the model or by the log.
    pub(super) fn trained(&self) -> Option<u64> {
        let log = self.facts.log;
        let named = || log.named_parameters.filter(|_| !self.shows(Sign::Adapters));
        self.model.map(|model| model.trained).or(log.trained).or(log.parameters).or_else(named)
    }

    /// Why the configuration is not the one of this log, where it is not.
    pub(super) fn stale(&self) -> Option<String> {
        let (config, setting) = self.facts.find(Key::Batch)?;
        let batch = self.facts.batch()?;
        if let Some(logged) = self.facts.log.number(Key::Batch).filter(|logged| *logged != batch) {
            return Some(format!(
                "{}: {} is {batch}, but the log is of a run with {logged}: no patch for a configuration of another run, \
                 or for one that was changed since",
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

    /// The largest micro-batch that divides the batch and is expected to fit.
    pub(super) fn micro_batch(&self) -> Option<Micro> {
        let batch = self.facts.batch().filter(|batch| *batch > 1)?;
        let is_counted = self.model.is_some() || self.facts.log.parameters.is_some();
        let fixed = self.fixed().filter(|_| is_counted);
        let (room, basis) = match (self.target(), self.sure_room()) {
            (Some(target), _) => (Some(target), Basis::Figures),
            (None, Some(room)) => (Some(room), Basis::Sure),
            (None, None) => (None, Basis::Guess),
        };
        let mut chosen = None;
        for samples in divisors(batch).into_iter().rev().skip(1) {
            let by_model = self.model.map(|model| model.peak(samples));
            let by_log = self.needed().zip(fixed).map(|(needed, fixed)| {
                let moving = needed.get().saturating_sub(fixed);
                Bytes(fixed.saturating_add((u128::from(moving) * u128::from(samples) / u128::from(batch)) as u64))
            });
            let peak = match (by_model, by_log) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
            // Without the fixed part, all of what was in use is taken to go down with the batch.
            let expected = peak.or_else(|| {
                self.needed()
                    .map(|needed| Bytes((u128::from(needed.get()) * u128::from(samples) / u128::from(batch)) as u64))
            });
            let basis = if expected.is_some() { basis } else { Basis::Guess };
            chosen = Some(Micro { samples, peak, basis });
            match (expected, room) {
                (Some(expected), Some(room)) if expected > room => {}
                _ => break,
            }
        }
        chosen
    }

    /// What the process surely can have where nothing says how much there is: its weights, gradients and moments, and once
    /// more a tensor as large as the one that was refused, since a layer holds several of them.
    fn sure_room(&self) -> Option<Bytes> {
        let is_step = !matches!(self.activity, Some(Activity::Loading | Activity::Saving | Activity::DataWorker));
        let model = self.model.filter(|_| self.oom.place == Place::Host && is_step)?;
        Some(Bytes(model.fixed()).saturating_add(self.oom.requested?))
    }
}
