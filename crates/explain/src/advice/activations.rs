//! Levers for what a step computes and keeps: activations, logits, attention, and graphs that outlive it.

use lowtide_config::Syntax;
use lowtide_core::Bytes;
use lowtide_log::StackFrame;

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, Gain, List, NOT_NUMBERS};
use crate::facts::{Facts, Key};
use crate::log::{Sign, names_language};
use crate::model::Model;
use crate::patch::{Patch, add_after, single, switch};
use crate::{Activity, Advice, Lever};

/// Tokens of a sample above which its activations are more than most weights.
const LONG_SAMPLE: u64 = 16_384;
/// Steps after which a failure is no matter of the usual step.
const WHILE: u64 = 5;

impl Case<'_> {
    /// Whether this is a transformer, whose libraries recompute by a switch.
    pub(super) fn is_transformer(&self) -> bool {
        let is_shown = self.is_language_model()
            || self.shows(Sign::Transformer)
            || self.shows(Sign::Diffusion)
            || self.shows(Sign::Adapters);
        // Whose memory needs DeepSpeed is mostly one, too.
        let is_of_large_cards = self.is_of_large_cards() || self.shows(Sign::DeepSpeed);
        is_shown || is_of_large_cards && !self.passes(&["conv", "Conv"])
    }

    /// Whether several processes train on cards of data centres, as is usual for language models.
    fn is_of_large_cards(&self) -> bool {
        self.facts.log.is_group && self.oom.capacity.is_some_and(|capacity| capacity >= Bytes::from_gib(30))
    }

    /// Whether the stack goes where attention makes matrices of scores.
    pub(super) fn makes_scores(&self) -> bool {
        let is_attention = self.culprit.is_some_and(|culprit| culprit.name.contains("attention scores"));
        let is_product = || {
            let is_it = self.frames.last().is_some_and(|frame| multiplies_queries_by_keys(&frame.code));
            is_it && self.exceeds_the_card()
        };
        is_attention
            || is_product()
            || self.message_or_frames(&["attn_weights", "attention_scores", "attention_probs", "attn_scores"])
    }

    /// Whether a step or the lines around it show a sum of losses that keeps every graph.
    fn keeps_graphs(&self) -> bool {
        let keeps = |frame: &StackFrame| {
            let code = &frame.code;
            let is_sum = code.contains("loss +=") || code.contains("losses.append(") || code.contains("loss = total");
            code.contains("retain_graph=True") || is_sum && !code.contains(".item()") && !code.contains(".detach()")
        };
        self.frames.iter().any(keeps) || self.narrative().keeps_losses
    }

    /// Whether something is kept from step to step, by the code or by what people tell.
    pub(super) fn keeps_something(&self) -> bool {
        self.keeps_graphs() || self.narrative().grows
    }

    /// Whether neither a model's arithmetic nor a patch tells two levers apart.
    pub(super) fn has_no_settings(&self) -> bool {
        self.model.is_none() && self.facts.configs.is_empty()
    }

    /// Whether boxes of a picture are matched with all anchors at once.
    pub(super) fn assigns_boxes(&self) -> bool {
        self.passes(&["assigners/", "bbox_overlaps", "iou_calculator", "pairwise_iou"])
    }

    /// Whether some steps went well before: later ones are larger, or something is kept.
    pub(super) fn has_run_a_while(&self) -> bool {
        let log = self.facts.log;
        // A post shows the last lines only, so that its first step need not be the run's, unless that was resumed.
        let first = log.first_step.filter(|_| log.resumes).unwrap_or(0);
        let steps = self.step.map_or(0, |step| step.saturating_sub(first));
        steps >= WHILE || log.epoch.is_some_and(|epoch| epoch >= 2) && !log.resumes || self.narrative().fails_later
    }

    /// Whether samples of so many tokens go in that they fill a card alone: by the settings, or by one request of half the card.
    pub(super) fn takes_long_samples(&self) -> bool {
        let is_set = self.facts.log.longest_sample.is_some_and(|tokens| tokens > LONG_SAMPLE);
        self.framework() == Framework::Torch
            && self.has_no_settings()
            && (is_set || self.is_one_large_request() && self.names_words() && !self.shows(Sign::Diffusion))
    }

    /// How long samples are, where that is set, or told of a language model.
    pub(super) fn sequence_to_shorten(&self) -> Option<u64> {
        let told = || self.facts.sequence().filter(|_| self.is_language_model());
        self.facts.number(Key::Sequence).or_else(told).filter(|sequence| *sequence > 1)
    }

    /// Whether words go in, by a model that need not be a transformer.
    pub(super) fn takes_words(&self) -> bool {
        self.names_words() || self.is_transformer() && !self.shows(Sign::Diffusion) && !self.takes_pictures()
    }

    /// Whether the log or the stack speaks of language.
    fn names_words(&self) -> bool {
        let words = ["translator", "/nlp/", "nlp.", "corpus", "vocab", "transformers/"];
        let is_of_language = |frame: &StackFrame| {
            [&frame.file, &frame.function, &frame.code].into_iter().any(|text| names_language(text))
        };
        let adapts_words = self.shows(Sign::Adapters) && !self.shows(Sign::Diffusion);
        self.is_language_model()
            || self.shows(Sign::Language)
            || adapts_words
            || self.passes(&words)
            || self.frames.iter().any(is_of_language)
    }

    /// Whether pictures go in, by the names in the stack.
    pub(super) fn takes_pictures(&self) -> bool {
        self.passes(&["image", "img", "pixel", "swin", "patch", "video", "unet", "vision", "resnet", "vit."])
    }

    /// Whether sound goes in, by the names in the stack.
    pub(super) fn takes_sound(&self) -> bool {
        self.shows(Sign::Sound)
            || self.narrative().names_recordings
            || self.passes(&["audio", "speech", "wav", "/asr/", "tts", "vocod", "voice", "recording"])
    }

    pub(super) fn message_or_frames(&self, words: &[&str]) -> bool {
        self.passes(words) || words.iter().any(|word| self.message.contains(word))
    }
}

impl List<'_> {
    pub(super) fn chunked_loss(&mut self) {
        let case = self.case;
        let peak = case.after(|model, batch| model.with_chunked_loss().peak(batch));
        let logits = case.model.zip(case.facts.batch()).map(|(model, batch)| model.logit_bytes(batch));
        let less = |(model, batch): (Model, u64)| {
            model.logit_bytes(batch).saturating_sub(model.with_chunked_loss().logit_bytes(batch))
        };
        let saves = case.model.zip(case.facts.batch()).map(less);
        let size = logits.map_or(String::new(), |bytes| format!(" ({bytes} with their gradients)"));
        let way = match case.framework() {
            Framework::Torch if case.shows(Sign::HuggingFaceTrainer) || case.facts.is_hugging_face() => {
                "use_liger_kernel=True (Liger), or cut-cross-entropy"
            }
            Framework::Torch => {
                "a fused linear cross-entropy (Liger, cut-cross-entropy), or a loop over slices under checkpoint"
            }
            _ => "a loop over slices of the tokens that recomputes each",
        };
        let text = format!("Compute the loss in pieces, so that the logits{size} are never held whole: {way}");
        self.push(Lever::ChunkedLoss, text, Gain { peak, saves }, ALL);
    }

    pub(super) fn recompute(&mut self) {
        let case = self.case;
        if case.facts.recomputes() {
            return;
        }
        let peak = case.after(|model, batch| Model { recomputes: true, ..model }.peak(batch));
        let saves = case
            .model
            .zip(case.facts.batch())
            .map(|(model, batch)| model.peak(batch).saturating_sub(Model { recomputes: true, ..model }.peak(batch)));
        let patch = match case.facts.find(Key::Recompute) {
            Some((config, setting)) => switch(config, setting, true),
            // Hugging Face's Trainer has it for every model of theirs.
            None => {
                case.facts.find(Key::Batch).filter(|_| case.facts.is_hugging_face()).and_then(|(config, setting)| {
                    let value = if config.syntax == Syntax::Python { "True" } else { "true" };
                    Patch::new(config, vec![add_after(config, setting, "gradient_checkpointing", value)?])
                })
            }
        };
        self.offer(patch);
        let way = match case.shows(Sign::Diffusion) && case.framework() == Framework::Torch {
            true => " (--gradient_checkpointing; also cache latents and the text encoder's outputs)",
            false => case.framework().recompute(),
        };
        let text = format!(
            "Gradient checkpointing: recompute activations in backward instead of keeping them{way}; about a third more \
             time"
        );
        self.push(Lever::Recompute, text, Gain { peak, saves }, ALL);
    }

    pub(super) fn attention_kernel(&mut self) {
        let case = self.case;
        let scores = case.model.zip(case.facts.batch()).and_then(|(model, batch)| {
            let heads = case.facts.number(Key::Heads)?;
            Some(Model { score_heads: heads, ..model }.score_bytes(batch))
        });
        let way = match (case.framework(), case.shows(Sign::Diffusion)) {
            (Framework::Torch, true) => {
                "--enable_xformers_memory_efficient_attention, or PyTorch's own F.scaled_dot_product_attention"
            }
            (Framework::Torch, false) => {
                "F.scaled_dot_product_attention, attn_implementation=\"sdpa\" or \"flash_attention_2\", or xformers"
            }
            (Framework::Jax, _) => "jax.nn.dot_product_attention with implementation='cudnn'",
            _ => "a fused attention of the framework",
        };
        let size = scores.filter(|bytes| *bytes > Bytes::ZERO).map_or(String::new(), |bytes| format!(", {bytes} here"));
        let text = format!(
            "Use a fused attention kernel, which never holds the matrix of scores (batch x heads x tokens x tokens{size}): {way}"
        );
        self.push(Lever::AttentionKernel, text, Gain { peak: None, saves: scores }, ALL);
    }

    pub(super) fn precision(&mut self) {
        let facts = self.case.facts;
        let no_bf16 = facts.has_no_bf16();
        if self.case.model.is_some_and(|model| model.is_narrow) || facts.computes_in_half() && !no_bf16 {
            return;
        }
        let kind = self.case.framework().precision(no_bf16);
        self.offer(precision_patch(facts, no_bf16));
        let text = format!("Mixed precision: compute in {kind}; about half the memory of activations");
        self.add(Lever::Precision, text, NOT_NUMBERS);
    }

    /// Recomputing, and beside it half precision, which makes the same tensors smaller.
    pub(super) fn recompute_or_precision(&mut self) {
        self.recompute();
        if self.case.has_no_settings() {
            let words = "; or half precision (torch.autocast in bf16, --bf16, --fp16), which takes half of their memory and rounds more";
            self.join_in_torch(Lever::Recompute, &[Lever::Precision], words);
            match self.case.facts.recomputes() {
                true => self.blocks_of_diffusion(),
                false => self.flags_of_diffusion(),
            }
            self.offload_beside(Lever::Recompute);
        }
        self.precision();
    }

    /// The same where no library recomputes by a switch.
    pub(super) fn precision_or_recompute(&mut self) {
        self.precision();
        if self.case.has_no_settings() && !self.case.facts.recomputes() {
            let words = "; or keep fewer of them: recompute in backward (torch.utils.checkpoint around each block)";
            self.join_in_torch(Lever::Precision, &[Lever::Recompute], words);
            self.offload_beside(Lever::Precision);
        }
        self.recompute();
    }

    /// Scripts that fine-tune a model for pictures have a flag for each, and small cards need them together.
    fn flags_of_diffusion(&mut self) {
        if self.case.shows(Sign::Diffusion) && self.case.trains() && !self.case.makes_scores() {
            let (kin, words): (&[Lever], _) = match self.case.facts.log.switches.eight_bit_moments {
                true => (
                    &[Lever::AttentionKernel],
                    "; on small cards together with fused attention (--xformers, --sdpa, --enable_xformers_memory_efficient_attention)",
                ),
                false => (
                    &[Lever::SmallerOptimizer, Lever::AttentionKernel],
                    "; on small cards together with an 8-bit optimizer (--use_8bit_adam) and fused attention (--xformers, --sdpa, \
                     --enable_xformers_memory_efficient_attention)",
                ),
            };
            self.join_in_torch(Lever::Recompute, kin, words);
        }
    }

    /// What their scripts have besides, where they recompute already.
    fn blocks_of_diffusion(&mut self) {
        if self.case.shows(Sign::Diffusion) && self.case.trains() && self.case.framework() == Framework::Torch {
            self.add(
                Lever::AttentionKernel,
                "Attention in parts or by a fused kernel (--split_attn, --sdpa, --xformers), and blocks of the model in CPU memory while \
                 they are not in use (--blocks_to_swap), where the script has them; slower",
                ALL,
            );
            self.join(Lever::AttentionKernel, &[Lever::Offload], "");
        }
    }

    /// What DeepSpeed shares out already can go to the host by a setting.
    fn offload_beside(&mut self, lever: Lever) {
        if self.case.shows(Sign::DeepSpeed) {
            let words = "; or offload optimizer states and weights to CPU memory (offload_optimizer and offload_param with device cpu), \
                         which is slower";
            self.join_in_torch(lever, &[Lever::Spill, Lever::Offload], words);
        }
    }

    fn join_in_torch(&mut self, lever: Lever, kin: &[Lever], words: &str) {
        if self.case.framework() == Framework::Torch {
            self.join(lever, kin, words);
        }
    }

    pub(super) fn smaller_input(&mut self) {
        let case = self.case;
        if case.is_language_model() || case.shows(Sign::Language) {
            return;
        }
        let text = match case.facts.number(Key::Crop) {
            Some(crop) => format!("Smaller inputs: crops of {} instead of {crop} pixels", (crop / 2).max(1)),
            None => {
                "Smaller inputs: crops, tiles or patches instead of whole pictures, fewer frames; where sizes differ, \
                     limit the largest"
                    .to_owned()
            }
        };
        self.add(Lever::SmallerInput, text, NOT_NUMBERS);
    }

    /// Smaller samples do what a smaller batch does.
    pub(super) fn smaller_samples(&mut self) {
        let case = self.case;
        let is_set =
            case.facts.number(Key::Crop).is_some() || case.is_language_model() && case.facts.sequence().is_some();
        let (kin, words): (&'static [Lever], &'static str) = match (case.takes_words(), case.takes_sound()) {
            // What the settings say has advice of its own, with their numbers.
            _ if is_set => return,
            _ if case.shows(Sign::Rollouts) => (
                &[Lever::ShorterSequence, Lever::FewerRequests],
                "; or shorter answers, and fewer for each question (max_completion_length, num_generations)",
            ),
            (_, true) => (
                &[Lever::ShorterSequence, Lever::SmallerInput],
                "; or shorter recordings: memory grows with each second",
            ),
            (true, _) if case.has_run_a_while() => (
                &[Lever::ShorterSequence],
                "; or limit the longest sample (max_length, truncation, batches of similar lengths): many steps went well, so it may be \
                 one long sample",
            ),
            (true, _) if !case.names_words() => (
                &[Lever::ShorterSequence, Lever::SmallerInput],
                "; or smaller samples (max_length, crops), with less context",
            ),
            (true, _) => {
                (&[Lever::ShorterSequence], "; or shorter samples (max_length, truncation), with less context")
            }
            _ if case.trains() && (case.takes_pictures() || case.shows(Sign::LibraryTrainer)) => {
                (&[Lever::SmallerInput], "; or smaller inputs (crops, a lower resolution, fewer frames or points)")
            }
            _ => (
                &[Lever::SmallerInput, Lever::ShorterSequence],
                "; or smaller inputs (crops, a lower resolution, fewer frames or points, shorter texts)",
            ),
        };
        self.join(Lever::MicroBatch, kin, words);
        let is_joined = |advice: &Advice| advice.lever == Lever::MicroBatch && advice.also.contains(&kin[0]);
        self.samples = self.advice.iter().any(is_joined).then_some((kin, words));
        if case.shows(Sign::Rollouts) && case.shows(Sign::ServerShare) {
            let words = "; or a smaller share for the server that answers (gpu_memory_utilization)";
            self.join(Lever::MicroBatch, &[Lever::LeaveRoom], words);
        }
    }

    pub(super) fn compile_off(&mut self) {
        let uses = self.case.facts.is_on(Key::Compile) == Some(true) || goes_through_compiled(self.case.frames);
        if uses {
            self.offer(self.case.facts.find(Key::Compile).and_then(|(config, setting)| switch(config, setting, false)));
            self.add(
                Lever::CompileOff,
                "Try without torch.compile, or with its default mode instead of max-autotune or reduce-overhead: compiled graphs may \
                 hold more at once",
                ALL,
            );
        }
    }

    pub(super) fn assign_on_host(&mut self) {
        self.add(
            Lever::AssignOnHost,
            "Match boxes on the CPU where a picture has very many: gpu_assign_thr=200 of mmdetection's assigner, or fewer boxes in a \
             picture (crops); the same matches, more slowly",
            ALL,
        );
    }

    /// Samples of one batch are as long as its longest.
    pub(super) fn longest_sample(&mut self) {
        // Where all are of one length, that is what there is to change, with its number.
        if self.case.facts.find(Key::Sequence).is_some() {
            return;
        }
        let why = match self.case.has_run_a_while() {
            true => "many steps went well, so it may be one long sample",
            false => "memory grows with each token",
        };
        let text = format!(
            "Limit the longest sample (max_length, max_seq_length, truncation), or the tokens of a batch (max_tokens, batches of similar \
             lengths): {why}; the model sees less context"
        );
        self.add(Lever::ShorterSequence, text, NOT_NUMBERS);
        if self.case.shows(Sign::PictureQuestion) {
            let words = "; pictures and films are tokens too: a lower resolution (max_pixels), fewer frames";
            self.join(Lever::ShorterSequence, &[Lever::SmallerInput], words);
        }
    }

    /// Answers that are generated before each step are what fills it.
    pub(super) fn shorter_answers(&mut self) {
        self.add(
            Lever::ShorterSequence,
            "Shorter answers, and fewer for each question: half of max_completion_length (max_response_length) and of \
             num_generations",
            NOT_NUMBERS,
        );
        self.join(Lever::ShorterSequence, &[Lever::FewerRequests], "");
    }

    /// What a loop over models leaves behind, in Keras.
    pub(super) fn clear_session(&mut self) {
        if self.case.framework() == Framework::Tensorflow {
            self.add(
                Lever::EmptyCache,
                "Free earlier models and graphs: tf.keras.backend.clear_session() before each model of a loop, or a process of its own \
                 for each; build no operations inside the loop over steps",
                ALL,
            );
        }
    }

    /// Something that is kept from step to step.
    pub(super) fn plain_numbers(&mut self) {
        if self.case.framework() != Framework::Torch || self.case.activity == Some(Activity::Evaluation) {
            return;
        }
        self.add(
            Lever::PlainNumbers,
            "Do not keep losses or outputs with their graphs: total += loss.item(), outputs.detach().cpu(); compute metrics under \
             torch.no_grad()",
            ALL,
        );
        self.join(Lever::PlainNumbers, &[Lever::NoGraph], "");
    }
}

/// `scores = torch.matmul(q, k.transpose(-2, -1))`: a product of queries and keys, whatever it is assigned to.
fn multiplies_queries_by_keys(code: &str) -> bool {
    let is_product = ["matmul(", "bmm(", " @ "].iter().any(|call| code.contains(call));
    let is_turned = [".transpose(", ".mT", ".permute("].iter().any(|call| code.contains(call));
    let names = |wanted: &[&str]| {
        let mut words = code.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| wanted.contains(&word.trim_end_matches(|c: char| c.is_ascii_digit())))
    };
    is_product && is_turned && names(&["q", "query", "queries"]) && names(&["k", "key", "keys"])
}

/// Half precision in the words of whoever reads the setting; the type of a stored model is left alone.
fn precision_patch(facts: &Facts<'_>, no_bf16: bool) -> Option<Patch> {
    let flag = if no_bf16 { Key::Fp16 } else { Key::Bf16 };
    if let Some((config, setting)) = facts.find(flag) {
        return switch(config, setting, true);
    }
    let (config, setting) = facts.find(Key::Dtype)?;
    let name = setting.path.last().map(|name| name.to_ascii_lowercase())?;
    let value = match (&*name, no_bf16) {
        ("dtype", false) => "bfloat16",
        ("dtype", true) => "float16",
        ("precision", false) => "bf16-mixed",
        ("precision", true) => "16-mixed",
        ("mixed_precision", false) => "bf16",
        ("mixed_precision", true) => "fp16",
        _ => return None,
    };
    single(config, setting, value)
}

/// Whether a stack goes through compiled code. PyTorch's own functions that are kept out of it go through its compiler
/// too, by way of `_compile.py`.
fn goes_through_compiled(frames: &[StackFrame]) -> bool {
    let is_kept_out = |at: usize| at > 0 && frames[at - 1].file_name() == "_compile.py";
    frames.iter().enumerate().any(|(at, frame)| {
        let has = |part: &str| frame.file.contains(part);
        has("_inductor") || has("torchinductor") || (has("_dynamo") && !is_kept_out(at))
    })
}
