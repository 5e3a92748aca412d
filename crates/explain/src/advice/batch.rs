//! The lever that keeps training as it is: a smaller micro-batch, with accumulation that keeps the product.

use lowtide_config::Syntax;
use lowtide_core::Bytes;
use lowtide_oom::Place;
use lowtide_trainers::{Answer, TrainingLoop, training_loop};

use super::case::{Basis, Case, Micro};
use super::device::AllocatorSwitch;
use super::framework::Framework;
use super::list::{ALL, Gain, List, NOT_NUMBERS};
use crate::facts::{FixedUpdate, Key};
use crate::log::Sign;
use crate::patch::micro_batch;
use crate::verdict::Lever;

/// What a layer that looks at its whole batch makes of a smaller one.
const SMALLER_STATISTICS: &str =
    "; BatchNorm then sees smaller batches: use GroupNorm, synchronize it over the cards, or freeze it";

impl List<'_> {
    pub(super) fn micro_batch(&mut self) {
        // What is told of it is told once.
        if self.advice.iter().any(|advice| advice.lever == Lever::MicroBatch) {
            return;
        }
        let case = self.case;
        if case.makes_one_tensor() {
            return self.smaller_tensor();
        }
        let facts = case.facts;
        let batch = facts.batch();
        let Some((micro, batch)) = case.micro_batch().zip(batch) else {
            match (facts.answer(Key::Batch), batch) {
                (Answer::Number { config, setting, .. }, Some(1)) => {
                    let name = setting.path.join(".");
                    self.no_patch(format!("{}: {name} is 1 already", config.name));
                }
                (Answer::Unknown(why), _) => self.no_patch(why),
                _ => {}
            }
            if batch != Some(1) {
                self.push_batch(case.smaller_batch(), None);
            }
            return;
        };
        let doubt = doubt(&case, micro);
        let Micro { samples: micro, peak, .. } = micro;
        let name = facts.find(Key::Batch).and_then(|(_, setting)| setting.name()).unwrap_or("batch size");
        let samples = if micro == 1 { "1 sample".to_owned() } else { format!("{micro} samples") };
        let is_evaluation_only = facts.is_on(Key::EvalOnly) == Some(true);
        let fixed = facts.fixed_update();
        let gathers = !is_evaluation_only && fixed.is_none();
        let accumulation = match facts.accumulation() {
            Ok(steps) => steps.saturating_mul(batch / micro),
            Err(_) if !gathers => 1,
            Err(why) => {
                self.no_patch(why);
                self.push_batch(case.half_the_batch().to_owned(), None);
                return;
            }
        };
        let mut text = match (is_evaluation_only, fixed, facts.whole_batch()) {
            (true, ..) => format!("Evaluate {samples} at once instead of {batch} ({name} {micro})"),
            (false, Some(fixed), _) => {
                fixed_text(&format!("{samples} at once instead of {batch}"), name, micro, &fixed)
            }
            (false, None, Some((_, whole))) => format!(
                "Compute {samples} at once instead of {batch}, on one device: gradient_accumulation_steps \
                 {accumulation}, and train_batch_size stays {}",
                whole.value
            ),
            (false, None, None) => format!(
                "Compute {samples} at once instead of {batch} and accumulate gradients over {accumulation} such \
                 micro-batches for each update ({name} {micro}, accumulation {accumulation})"
            ),
        };
        let is_set = facts.answer(Key::Accumulation) != Answer::Absent
            || facts.log.number(Key::Accumulation).is_some()
            || facts.log.tokens_per_iteration.is_some();
        if !is_set && gathers && facts.answer(Key::Batch) != Answer::Absent {
            let usual = if facts.is_nanogpt() { " (nanoGPT's is 40)" } else { "" };
            self.notes.push(format!(
                "accumulation is set nowhere and was taken to be 1; if the script's own default is \
                 another{usual}, multiply the new one by it"
            ));
        }
        match micro_batch(facts, micro, accumulation) {
            Ok(patch) => {
                let is_command = patch.syntax == Syntax::Command;
                self.notes.extend(facts.change_besides(&patch.file, micro, accumulation));
                if let Some(flags) = facts.flags(micro, accumulation).filter(|_| !is_command && gathers) {
                    text.push_str(&format!("; on the command line: {flags}"));
                }
                self.offer(Some(patch));
                self.notes.extend(doubt);
            }
            Err(why) if facts.answer(Key::Batch) != Answer::Absent => {
                self.no_patch(why);
                self.notes.extend(loop_to_paste(&case, micro, accumulation).filter(|_| gathers));
            }
            Err(_) => {}
        }
        self.push_batch(text, peak);
    }

    fn push_batch(&mut self, mut text: String, peak: Option<Bytes>) {
        let keeps = match self.case.normalizes_batches() {
            true => {
                text.push_str(SMALLER_STATISTICS);
                NOT_NUMBERS
            }
            false => ALL,
        };
        self.push(Lever::MicroBatch, text, Gain::peak(peak), keeps);
    }

    /// One tensor that a line of a script makes.
    fn smaller_tensor(&mut self) {
        self.add(
            Lever::SmallerInput,
            "A smaller tensor: in pieces, one after the other, or of a narrower type (dtype=torch.float16); check that its shape is what \
             you meant",
            NOT_NUMBERS,
        );
        self.join(Lever::SmallerInput, &[Lever::MoreMemory], "; or a card with more memory");
    }

    /// Says once why the batch has no patch.
    fn no_patch(&mut self, why: impl std::fmt::Display) {
        let note = format!("no patch for the batch: {why}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

impl Case<'_> {
    /// Whether a layer of the model trains on statistics of its batch.
    fn normalizes_batches(&self) -> bool {
        let is_shown = self.shows(Sign::BatchNorm) || self.message_or_frames(&["BatchNorm", "batch_norm", "batchnorm"]);
        is_shown && self.facts.is_on(Key::EvalOnly) != Some(true)
    }

    /// The same without the numbers; where half of one request would be too much by itself, as many pieces as make it fit.
    fn smaller_batch(&self) -> String {
        let room = |asked: Bytes| {
            let room = self.oom.capacity?.saturating_sub(self.oom.allocated.unwrap_or_default());
            (!room.is_zero()).then(|| asked.get().div_ceil(room.get()).next_power_of_two())
        };
        let pieces = self.oom.requested.and_then(|asked| Some((asked, room(asked)?)));
        match pieces.filter(|(_, pieces)| *pieces > 2 && self.framework() == Framework::Torch) {
            Some((asked, pieces)) => format!(
                "Compute at most 1/{pieces} of the batch at once, with {pieces} times the gradient accumulation of now; half of the \
                 {asked} asked for would still be more than there is"
            ),
            None => self.half_the_batch().to_owned(),
        }
    }

    /// The same without the numbers, where they are not known, in the words of the trainer.
    fn half_the_batch(&self) -> &'static str {
        match self.framework() {
            _ if self.shows(Sign::Fairseq) => {
                "Halve --max-tokens (or --batch-size) and double --update-freq; the effective batch stays the same"
            }
            Framework::Tensorflow => {
                "Halve batch_size; gradient_accumulation_steps=2 of the tf.keras optimizer keeps the effective batch the same"
            }
            Framework::Jax => "Halve the batch; optax.MultiSteps keeps the effective batch the same",
            _ => "Halve the micro-batch and double gradient accumulation; the effective batch stays the same",
        }
    }
}

/// The loop of a script on plain PyTorch with accumulation, in its own names, where the batch stands in that script.
fn loop_to_paste(case: &Case<'_>, micro: u64, accumulation: u64) -> Option<String> {
    let Answer::Number { config, setting, .. } = case.facts.answer(Key::Batch) else { return None };
    let TrainingLoop { lines: (first, last), text } = training_loop(config, accumulation).ok()?;
    let (file, name) = (&config.name, setting.name()?);
    Some(format!(
        "{file}, lines {first} to {last}, with gradient accumulation, for {name} {micro}:\n{}",
        text.trim_end_matches('\n')
    ))
}

/// Why the first patch may not be enough, or is smaller than it need be.
fn doubt(case: &Case<'_>, micro: Micro) -> Option<String> {
    let memory = if case.oom.place == Place::Host { "the machine" } else { "the device" };
    match micro.basis {
        Basis::Sure => Some(format!(
            "the log does not say how much memory {memory} has: the micro-batch was chosen so that it fits into what was \
             given before the error; a larger one may fit too"
        )),
        Basis::Guess => {
            let unknown = match case.target() {
                Some(_) => "how much of it was in use".to_owned(),
                None => format!("how much memory {memory} has"),
            };
            Some(format!(
                "the log does not say {unknown}: half the batch is a guess, so halve again if it fails again"
            ))
        }
        // A step that failed in forward had not come to its peak, which only a model's arithmetic knows.
        Basis::Figures if case.model.is_none() && case.passes(&["forward"]) && !case.passes(&["backward"]) => Some(
            "it failed in the forward pass, before the step's peak, and the model is not known: if it fails again, halve \
             again"
                .to_owned(),
        ),
        Basis::Figures => left_in_pieces(case, micro),
    }
}

/// Whether what the allocator leaves idle in pieces may be what is missing: with a card of 11.7 GiB and an expected peak of
/// 9.96 GiB it left 2.4 GiB, about as much as the largest block of the step, the logits in fp32.
fn left_in_pieces(case: &Case<'_>, micro: Micro) -> Option<String> {
    let (model, peak, available) = (case.model?, micro.peak?, case.judgement.available?);
    let is_plain = case.oom.place == Place::Device && case.allocator_switch() == AllocatorSwitch::Expandable;
    if !is_plain || case.framework() != Framework::Torch || case.lets_segments_grow() {
        return None;
    }
    let block = Bytes(model.logit_bytes(micro.samples).get() / 3);
    if peak > available || peak.saturating_add(block) <= available {
        return None;
    }
    let (name, value) = case.allocator_setting();
    let again = if micro.samples > 1 { ", or halve the batch once more" } else { "" };
    Some(format!(
        "the expected peak of {peak} leaves {} of {available}, less than the largest block of the step ({block}): the allocator may \
         leave as much idle in pieces, so set {name}={value} with the patch{again}",
        available.saturating_sub(peak)
    ))
}

/// A smaller micro-batch where the update is set as a whole.
fn fixed_text(pieces: &str, name: &str, micro: u64, fixed: &FixedUpdate<'_>) -> String {
    let stays = match fixed.samples {
        Some(samples) if samples.is_multiple_of(micro) => {
            format!("{samples}: {} such micro-batches for each update, over all devices", samples / micro)
        }
        Some(samples) => samples.to_string(),
        None => "as it is".to_owned(),
    };
    format!("Compute {pieces} ({name} {micro}); {} stays {stays}", fixed.name)
}
