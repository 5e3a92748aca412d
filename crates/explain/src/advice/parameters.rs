//! Levers for what a model holds whatever the batch: weights, gradients and the optimizer's moments.

use lowtide_core::Bytes;
use lowtide_oom::Place;

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, Gain, List, NOT_MODEL, NOT_NUMBERS};
use crate::log::{Sign, WeightBits};
use crate::model::{Model, SMALL_MOMENTS};
use crate::sharing::{Held, Sharing};
use crate::{Activity, Lever};

/// Bytes of a gradient for each trained parameter.
const GRADIENT: u64 = 4;
/// Bytes of a weight that adapters leave as it is.
const HALF_PRECISION: u64 = 2;
/// Bytes of two moments in fp32 for each trained parameter.
const MOMENTS: u64 = 8;

impl Case<'_> {
    /// Whether parameters were being updated; DeepSpeed has functions of its own for that.
    pub(super) fn updates(&self) -> bool {
        self.activity == Some(Activity::Optimizer) || self.passes(&["_optimizer_step(", "deepspeed/runtime/zero/stage"])
    }

    /// Whether what stays from step to step had room: steps that went well show it, and a part that is shared out is smaller than
    /// the arithmetic says.
    pub(super) fn has_room_for_fixed(&self) -> bool {
        self.has_run_a_while() || self.shows(Sign::Fsdp)
    }

    /// Whether weights, gradients and moments alone are more than there is: then no batch is small enough.
    pub(super) fn fixed_part_is_too_much(&self) -> bool {
        if self.has_room_for_fixed() {
            return false;
        }
        let fixed = self.fixed();
        // All weights of a known model on one card, whose size somebody tells.
        let told = || self.narrative().card_gigabytes.map(Bytes::from_gib).filter(|_| !self.facts.log.is_group);
        fixed.zip(self.target().or_else(told)).is_some_and(|(fixed, target)| fixed > target.get())
    }
}

impl Case<'_> {
    /// Weights, gradients and moments together.
    pub(super) fn fixed(&self) -> Option<u64> {
        self.held().map(|held| held.all())
    }

    /// The optimizer's two moments.
    fn moments(&self) -> Option<u64> {
        self.held().map(|held| held.moments)
    }

    /// Weights, gradients and moments: by the model, or by the parameters that the log counts.
    fn held(&self) -> Option<Held> {
        self.model.map(|model| model.held()).or_else(|| {
            let trained = self.trained()?;
            let weights = self.facts.log.parameters.unwrap_or(trained).saturating_mul(self.bytes_of_a_weight());
            let sharing = Sharing::read(&self.facts.log.switches.sharing)?;
            Some(Held {
                weights: sharing.of_weights(weights),
                gradients: sharing.of_gradients(trained.saturating_mul(self.bytes_of_a_gradient())),
                moments: sharing.of_moments(trained.saturating_mul(self.bytes_of_moments())),
            })
        })
    }

    /// Bytes that a weight takes at most: those that adapters leave as they are come in half precision, or in fewer bits.
    fn bytes_of_a_weight(&self) -> u64 {
        if let Some(model) = self.model {
            return model.bytes_of_a_weight();
        }
        match (self.has_quantized_weights(), self.shows(Sign::Adapters)) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 4,
        }
    }

    /// Bytes that the optimizer's moments take for each trained parameter.
    fn bytes_of_moments(&self) -> u64 {
        let usual = || if self.facts.log.switches.eight_bit_moments { SMALL_MOMENTS } else { MOMENTS };
        self.model.map_or_else(usual, |model| model.bytes_of_moments())
    }

    /// Bytes that a gradient takes for each trained parameter.
    fn bytes_of_a_gradient(&self) -> u64 {
        self.model.map_or(GRADIENT, |model| model.bytes_of_a_gradient())
    }

    /// Whether weights come in half precision already.
    pub(super) fn loads_in_half(&self) -> bool {
        self.facts.log.switches.half_weights
    }

    /// What the weights of the model that is named take in 16, 8 and 4 bits, where 16 do not fit.
    pub(super) fn size_of_weights(&self) -> String {
        let Some((count, capacity)) = self.facts.log.named_parameters.zip(self.oom.capacity) else {
            return String::new();
        };
        let [half, eight, four] = [count.saturating_mul(2), count, count / 2].map(Bytes);
        if half <= capacity || self.facts.log.is_group {
            return String::new();
        }
        format!(": {half} in 16 bits, {eight} in 8 and {four} in 4, and the card has {capacity}")
    }

    /// Whether TensorFlow was making a weight or a moment, before anything was computed.
    pub(super) fn makes_weights(&self) -> bool {
        self.shows(Sign::NewWeights) && self.framework() == Framework::Tensorflow && self.oom.place == Place::Device
    }

    /// Whether the first step of a single sample fails where a billion parameters or more are trained: no card for less than a data
    /// centre holds their 16 bytes each.
    pub(super) fn is_one_sample_for_billions(&self) -> bool {
        let is_first = self.facts.batch() == Some(1) && !self.has_run_a_while() && self.target().is_none();
        is_first && !self.shows(Sign::Adapters) && self.trained().is_some_and(|trained| trained >= 1_000_000_000)
    }
}

impl List<'_> {
    /// No batch has a part in what is made before the first step: the card is taken, or too small for the model.
    pub(super) fn new_weights(&mut self) {
        self.other_process();
        let words = format!("; or {}", self.case.leave_room());
        self.join_others(&[Lever::LeaveRoom], &words);
        let text = "A smaller model (fewer layers, channels or dimensions), or a card with more memory: its weights and moments \
                    alone did not fit";
        self.add(Lever::SmallerModel, text, NOT_MODEL);
        self.join(Lever::SmallerModel, &[Lever::MoreMemory], "");
        self.training();
        // Weights are made in no order that a log shows: beside some of them tensors of the first step are there already.
        if self.advice.iter().any(|advice| advice.lever == Lever::MicroBatch && advice.patch.is_none()) {
            self.take_in(Lever::MicroBatch, Lever::SmallerModel);
        }
    }

    /// The levers that make the fixed part smaller, those that keep the training first where it is shared out already.
    pub(super) fn lighter_parameters(&mut self) {
        // Who shares out moments can share out weights, too.
        if self.case.facts.log.is_group || self.case.shows(Sign::ZeroTwo) {
            self.shard();
            if self.case.has_no_settings() && !self.case.shows(Sign::DeepSpeed) {
                let words =
                    "; both can offload optimizer states to CPU memory as well (CPUOffloadPolicy, offload_optimizer)";
                self.join(Lever::Shard, &[Lever::Spill], words);
            }
        }
        self.adapters();
        self.smaller_optimizer();
        if self.case.has_no_settings() {
            let words = "; or offload its states to CPU memory (DeepSpeed's offload_optimizer)";
            self.join(Lever::SmallerOptimizer, &[Lever::Spill], words);
        }
        self.shard();
        if self.case.facts.log.switches.eight_bit_moments && self.case.has_no_settings() {
            let words = "; on one card, offload weights and optimizer states to CPU memory (DeepSpeed's offload_param and \
                         offload_optimizer); slower";
            self.join(Lever::Shard, &[Lever::Spill], words);
        }
        self.spill();
    }

    pub(super) fn adapters(&mut self) {
        let case = self.case;
        let is_partly_trained = case.model.is_some_and(|model| model.trained < model.parameters);
        let adapts = (case.shows(Sign::Adapters) || is_partly_trained) && !case.narrative().tunes_all_weights;
        let has_few_bits =
            case.has_quantized_weights() && !matches!(case.facts.flags.weight_bits(), WeightBits::Few(5..));
        if case.framework() != Framework::Torch || adapts && has_few_bits {
            return;
        }
        if adapts {
            let four_bits = |model: Model| Bytes(model.weights().saturating_sub(model.in_four_bits().weights()));
            let weights = case.model.map(four_bits);
            let peak = case.after(|model, batch| model.in_four_bits().peak(batch));
            let size = weights.map_or(String::new(), |bytes| format!(" and save {bytes}"));
            let text = format!(
                "QLoRA: hold the weights that are not trained in 4 bits (load_in_4bit), which take half a byte each{size}; \
                 slower, and a little less exact"
            );
            self.push(Lever::Adapters, text, Gain { peak, saves: weights }, NOT_NUMBERS);
            return;
        }
        let bytes = case.bytes_of_a_gradient() + case.bytes_of_moments();
        let adapted = case.model.map(|model| model.with_adapters());
        let weight = adapted.map_or(HALF_PRECISION, |model| model.bytes_of_a_weight());
        let less = case.bytes_of_a_weight().saturating_sub(weight);
        let is_shared_out = case.facts.log.switches.sharing.stage.is_some();
        let saves = match case.model.zip(adapted) {
            Some((model, adapted)) => Some(Bytes(model.fixed().saturating_sub(adapted.fixed()))),
            None if is_shared_out => None,
            None => case.trained().map(|trained| Bytes(trained.saturating_mul(bytes + less))),
        };
        let peak = case.after(|model, batch| model.with_adapters().peak(batch));
        let size = saves.map_or(String::new(), |bytes| format!(", {bytes} here"));
        let (all, four_bits) = (bytes + less, weight as f64 - 0.5);
        let text = format!(
            "Train LoRA adapters (peft) instead of all weights: saves {all} bytes per parameter{size}; QLoRA (base weights in 4 bits) \
             saves another {four_bits} bytes per parameter. Only the adapters are trained"
        );
        self.push(Lever::Adapters, text, Gain { peak, saves }, NOT_NUMBERS);
    }

    pub(super) fn smaller_optimizer(&mut self) {
        let case = self.case;
        if case.framework() != Framework::Torch || case.facts.log.switches.eight_bit_moments {
            return;
        }
        let of_each = case.bytes_of_moments();
        let saves = case.moments().map(|moments| Bytes(moments / of_each * (of_each - SMALL_MOMENTS)));
        let peak = saves.and_then(|saves| case.after(|model, batch| model.peak(batch).saturating_sub(saves)));
        let size = saves.map_or(String::new(), |bytes| format!(", {bytes} here"));
        let text = format!(
            "Use an 8-bit optimizer: bitsandbytes' AdamW8bit (optim=\"paged_adamw_8bit\" in Hugging Face's Trainer) saves {} of \
             {of_each} bytes per parameter{size}; paged, its states move to CPU memory when the card is full. Training comes out nearly \
             the same",
            of_each - SMALL_MOMENTS
        );
        self.push(Lever::SmallerOptimizer, text, Gain { peak, saves }, NOT_NUMBERS);
    }

    pub(super) fn shard(&mut self) {
        let case = self.case;
        if case.framework() != Framework::Torch {
            return;
        }
        let counted = case.model.is_some() || case.facts.log.parameters.is_some();
        let saves = case.fixed().filter(|_| counted).map(|fixed| Bytes(fixed / 2));
        let peak = saves.and_then(|saves| case.after(|model: Model, batch| model.peak(batch).saturating_sub(saves)));
        let size = saves.map_or(String::new(), |bytes| format!(": {bytes} less on each of two"));
        let offload =
            if case.shows(Sign::DeepSpeed) { "; offload_optimizer puts optimizer states in CPU memory" } else { "" };
        let text = format!(
            "Shard weights, gradients and optimizer states over the cards (FSDP2's fully_shard, DeepSpeed ZeRO-3) from the start, so \
             that none ever holds the whole model{size}{offload}; the same training, more traffic between cards"
        );
        self.push(Lever::Shard, text, Gain { peak, saves }, ALL);
        if case.shows(Sign::DeepSpeed) {
            self.join(Lever::Shard, &[Lever::Spill], "");
        }
    }

    pub(super) fn spill(&mut self) {
        let case = self.case;
        let way = match (case.shows(Sign::DeepSpeed), case.framework()) {
            (true, Framework::Torch) => {
                ": offload_optimizer and offload_param with device cpu in DeepSpeed's configuration (ds_z3_offload)"
            }
            (_, Framework::Other) if case.may_be_torch() => "",
            (_, framework) => match framework.spill() {
                Some(way) => way,
                None => return,
            },
        };
        let moments = case.moments().map(Bytes);
        let peak = moments.and_then(|moments| case.after(|model, batch| model.peak(batch).saturating_sub(moments)));
        let size = moments.map_or(String::new(), |moments| format!(" ({moments})"));
        let text = format!("Offload optimizer states{size} to CPU memory{way}; slower");
        self.push(Lever::Spill, text, Gain { peak, saves: moments }, ALL);
    }
}
