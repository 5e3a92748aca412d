//! Programs that use a model and do not train it: pictures, texts, speech. No gradient, no recompute is spoken of.

use lowtide_log::StackFrame;
use lowtide_oom::{DeviceKind, Engine, Source};

use super::case::Case;
use super::framework::Framework;
use super::letters::sentence;
use super::list::{ALL, List, NOT_MODEL, NOT_NUMBERS};
use crate::code_line::is_own;
use crate::log::Sign;
use crate::{Activity, Cause, Lever};

/// What is made from a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inference {
    /// Pictures and films by diffusion.
    Pictures,
    /// Texts by Transformers' generate and its kin.
    Texts,
    /// Speech turned into text.
    Speech,
    /// Vectors of texts.
    Vectors,
    /// Something else, whose weights are just being loaded.
    Weights,
    /// Something else, by ONNX Runtime.
    Session,
    /// Something else, by a script that uses a model.
    Forward,
}

impl Inference {
    pub(super) fn of(case: &Case<'_>) -> Option<Self> {
        if case.oom.engine == Engine::OnnxRuntime {
            return Some(Self::Session);
        }
        let only_uses = case.only_uses_a_model();
        let trains = case.trains() || matches!(case.activity, Some(Activity::Saving | Activity::Optimizer));
        if trains && !only_uses {
            return None;
        }
        let makes_pictures =
            [Sign::Comfy, Sign::Webui, Sign::Diffusers, Sign::Diffusion].into_iter().any(|it| case.shows(it));
        let is_chat = case.shows(Sign::ChatPage);
        if makes_pictures && !is_chat || case.message.contains("llocation on device") {
            return Some(Self::Pictures);
        }
        if case.shows(Sign::Speech) || case.message.contains("CUDA failed with error out of memory") {
            return Some(Self::Speech);
        }
        if case.makes_vectors() && !case.loads() {
            return Some(Self::Vectors);
        }
        // A program that is named after what it makes moves its weights first.
        let last = case.frames.iter().rev().take(2);
        if last.into_iter().any(|frame| matches!(&*frame.function, "_apply" | "convert")) {
            return Some(Self::Weights);
        }
        let is_metal = case.oom.engine == Engine::Mlx && !case.passes(&["backward", "grad"]);
        // Masks of a picture are generated too.
        let generates = case.shows(Sign::Generation) && !case.passes(&["segment_anything", "mask_generator"]);
        // Weights in fewer bits that are not trained are a language model's.
        let is_quantized = case.has_quantized_weights() && case.framework() == Framework::Torch && !case.loads();
        let is_asked_about_pictures = case.shows(Sign::PictureQuestion) && case.is_said_to_infer();
        if generates || is_chat || is_metal || is_quantized || is_asked_about_pictures {
            return Some(Self::Texts);
        }
        if case.narrative().loads && case.frames.is_empty() {
            return Some(Self::Weights);
        }
        if only_uses || (case.shows(Sign::Upscaling) || case.is_said_to_infer()) && !trains {
            return Some(Self::Forward);
        }
        let is_move = |frame: &StackFrame| {
            matches!(&*frame.function, "_apply" | "convert")
                || ["._apply(", "convert(", "model.to("].iter().any(|call| frame.code.contains(call))
        };
        let is_on_its_way = case.frames.iter().any(is_move) || case.moves_itself();
        let moves_weights = is_on_its_way && case.step.is_none() && !case.makes_one_tensor();
        let is_torch = case.framework() == Framework::Torch;
        (is_torch && !case.facts.log.is_group && (case.loads() || moves_weights)).then_some(Self::Weights)
    }
}

impl Case<'_> {
    /// Whether texts were being turned into vectors; what uses them later shows the library too.
    pub(super) fn makes_vectors(&self) -> bool {
        let is_inside = self.frames.is_empty() || self.passes(&["sentence_transformers", ".encode("]);
        self.shows(Sign::Embedding) && !self.shows(Sign::Generation) && is_inside
    }

    /// Whether people tell that a model is used, and no weights are on their way.
    fn is_said_to_infer(&self) -> bool {
        self.narrative().infers && !self.loads()
    }

    /// Whether something is moved to the card as a whole: `model.cuda()`, not `model(inputs.cuda())`.
    fn moves_itself(&self) -> bool {
        self.frames.iter().any(|frame| {
            let before = frame.code.split_once(".cuda(").map(|(before, _)| before);
            before.is_some_and(|before| before.matches('(').count() == before.matches(')').count())
        })
    }

    /// Whether a script calls the parts of a pipeline by itself: a pipeline keeps no graph, and a part alone does.
    fn calls_parts_itself(&self) -> bool {
        let is_program = [Sign::Comfy, Sign::Webui, Sign::LatentDiffusion].into_iter().any(|sign| self.shows(sign));
        let calls = |frame: &StackFrame| {
            let parts = [".encode(", ".decode(", "vae(", "unet(", "transformer("];
            is_own(frame) && parts.iter().any(|part| frame.code.contains(part))
        };
        let is_part = self.passes(&["diffusers/models/"]) && !self.passes(&["pipelines/", "pipeline("]);
        !is_program && is_part && self.frames.iter().any(calls)
    }

    /// Whether pictures are a part of the question.
    fn looks_at_pictures(&self) -> bool {
        self.shows(Sign::PictureQuestion) || self.passes(&["vision", "visual", "image"])
    }
}

impl List<'_> {
    pub(super) fn inference(&mut self, kind: Inference) {
        let case = self.case;
        self.start_afresh();
        self.share_of_jax();
        self.window_outputs();
        if case.shows(Sign::PinnedBuffer) {
            self.no_pinned_memory();
        }
        // Metal's largest buffer cannot be raised.
        let is_buffer = case.message.contains("maximum allowed buffer size");
        if case.oom.device_kind == Some(DeviceKind::Mps) && !is_buffer {
            self.limit();
        }
        // The driver's bare word is how these programs say that the card is full.
        let is_bare =
            is_buffer || case.judgement.cause == Cause::OutsideAllocator && case.oom.source == Source::Runtime;
        if !is_bare {
            self.what_stands_in_the_way();
        }
        match kind {
            Inference::Pictures => self.pictures(),
            Inference::Texts => self.texts(),
            Inference::Speech => self.speech(),
            Inference::Vectors => self.vectors(),
            Inference::Weights => self.weights(),
            Inference::Session => self.session(),
            Inference::Forward => self.forward(),
        }
        if case.has(Cause::Fragmentation) {
            self.expandable();
        }
        if case.has(Cause::OtherProcess) {
            self.other_process();
        }
        if case.has(Cause::Limit) {
            self.limit();
        }
        self.restart_kernel();
    }

    fn vectors(&mut self) {
        self.add(
            Lever::FewerRequests,
            "Fewer texts at once (batch_size of encode), or shorter ones (max_seq_length)",
            NOT_NUMBERS,
        );
        self.join(Lever::FewerRequests, &[Lever::MicroBatch, Lever::ShorterSequence], "");
        self.add(
            Lever::OutputsToHost,
            "Keep the vectors off the card: convert_to_numpy=True instead of convert_to_tensor=True, or .cpu() for each batch",
            ALL,
        );
        let words = "; where they are many, encode some hundred thousand texts at a time and write each part to disk";
        self.join(Lever::OutputsToHost, &[Lever::LoadInPieces], words);
        self.precision();
    }

    fn pictures(&mut self) {
        let case = self.case;
        let is_block = case.message.contains("larger than 4GB");
        let decoders = ["vae", "VAE", "autoencoder", "decode(", "tile"];
        let is_tile = is_block || case.passes(&decoders) || case.is_one_large_request();
        let has_tiles = case.facts.log.signs.has(Sign::Diffusion) && case.message.contains("tile");
        if case.shows(Sign::FullPrecision) && case.may_be_torch() {
            self.add(
                Lever::Precision,
                "Half precision: remove --no-half and --precision full (torch_dtype=torch.float16), which take twice the memory",
                NOT_NUMBERS,
            );
        }
        // Scripts of their own compute in fp32 until they are told otherwise; the programs do not.
        let is_script = ![Sign::Comfy, Sign::Webui, Sign::Diffusers].into_iter().any(|sign| case.shows(sign));
        if is_script && case.shows(Sign::LatentDiffusion) && case.may_be_torch() {
            self.add(
                Lever::Precision,
                "Half precision: model.half() for all parts, and torch.autocast around the sampling; half the memory",
                NOT_NUMBERS,
            );
        }
        if case.calls_parts_itself() {
            self.no_graph();
        }
        if is_tile || has_tiles {
            self.picture_tiles();
            self.join(Lever::Tiles, &[Lever::SmallerInput], "; or a lower resolution, fewer frames at once");
        }
        if case.makes_scores() || case.passes(&["attention", "attn"]) {
            self.picture_attention();
            // One large tensor is a matter of the picture's size, not of the weights.
            if case.is_large_request() {
                self.lower_resolution();
            }
        }
        self.picture_offload();
        self.lower_resolution();
        self.picture_tiles();
    }

    fn lower_resolution(&mut self) {
        self.add(
            Lever::SmallerInput,
            "A lower resolution, or fewer pictures or frames at once: memory of attention grows with the square of the pixels",
            NOT_NUMBERS,
        );
        self.join(Lever::SmallerInput, &[Lever::Tiles], "; or in tiles (a tiled sampler, a tiled decoder)");
        self.join(Lever::SmallerInput, &[Lever::FewerRequests], "");
    }

    fn texts(&mut self) {
        let case = self.case;
        if case.looks_at_pictures() {
            self.add(
                Lever::SmallerInput,
                "Smaller pictures: max_pixels of the processor (512 * 28 * 28, say), fewer pictures or frames in a question; each \
                 becomes thousands of tokens",
                NOT_NUMBERS,
            );
            let words = "; one question at a time, and shorter answers (max_new_tokens)";
            self.join(Lever::SmallerInput, &[Lever::FewerRequests, Lever::ShorterSequence], words);
        }
        if case.oom.engine == Engine::Mlx {
            return self.metal_texts();
        }
        if case.makes_scores() && case.is_large_request() {
            self.attention_kernel();
        }
        self.fewer_prompts("Fewer prompts at once: a smaller batch for generate, one after the other if need be");
        if !case.may_be_torch() {
            return self.smaller_texts();
        }
        if !case.has_quantized_weights() {
            let size = case.size_of_weights();
            let (half, kin): (_, &[Lever]) = match case.loads_in_half() {
                true => ("", &[]),
                false => (", or torch_dtype=torch.bfloat16", &[Lever::Precision]),
            };
            self.quantized_weights(&format!("weights in 4 or 8 bits (BitsAndBytesConfig{size}){half}"));
            self.join(Lever::Quantize, kin, "");
            let words =
                "; or offload a part of them to CPU memory or to further cards (device_map=\"auto\"), which is slower";
            self.join(Lever::Quantize, &[Lever::Offload, Lever::MoreCards], words);
            let words = "; or a smaller model, or a card with more memory";
            self.join(Lever::Quantize, &[Lever::SmallerModel, Lever::MoreMemory], words);
        } else {
            self.offload();
            let words = "; or further cards (device_map=\"auto\"), one with more memory, or a smaller model: the weights are in few bits \
                         already";
            self.join(Lever::Offload, &[Lever::MoreCards, Lever::MoreMemory, Lever::SmallerModel], words);
        }
        self.add(
            Lever::CacheType,
            "A smaller cache: cache_implementation=\"offloaded\" or a quantised one; use_cache=False holds none and is much \
             slower",
            NOT_NUMBERS,
        );
        self.offload();
        self.add(
            Lever::NoGraph,
            "Keep no graph: torch.inference_mode() around a forward of your own; generate does so itself",
            ALL,
        );
    }

    /// What a language model of another framework than PyTorch takes.
    fn smaller_texts(&mut self) {
        if self.case.shows(Sign::Quantized) {
            self.add(Lever::SmallerModel, "A smaller model: the weights are in few bits already", NOT_MODEL);
            return self.join(Lever::SmallerModel, &[Lever::MoreMemory], "; or a card with more memory");
        }
        self.quantized_weights("weights in half precision, 8 or 4 bits");
        let words = "; or a smaller model, or a card with more memory";
        self.join(Lever::Quantize, &[Lever::SmallerModel, Lever::MoreMemory], words);
    }

    fn fewer_prompts(&mut self, text: &str) {
        self.add(Lever::FewerRequests, text, NOT_NUMBERS);
        self.join(
            Lever::FewerRequests,
            &[Lever::ShorterSequence],
            "; shorter prompts and answers (truncation, max_new_tokens), fewer beams: the cache of keys and values grows with \
             each token",
        );
    }

    fn speech(&mut self) {
        self.quantized_weights("a smaller model (medium or small instead of large), or compute_type=\"int8\"");
        self.join(Lever::Quantize, &[Lever::SmallerModel], "");
        match self.case.shows(Sign::Batch) {
            true => self.fewer_pieces_of_sound(),
            false => {
                let words = "; or fewer pieces of sound at once (a smaller batch_size), and shorter ones";
                self.join(Lever::Quantize, &[Lever::FewerRequests, Lever::ShorterSequence], words);
            }
        }
        self.add(
            Lever::Offload,
            "Run on the CPU (device=\"cpu\", slower) or on a card with more memory, or end what else holds the card",
            ALL,
        );
        self.join(Lever::Offload, &[Lever::MoreMemory, Lever::EndOtherProcess], "");
        self.fewer_pieces_of_sound();
    }

    fn fewer_pieces_of_sound(&mut self) {
        self.add(
            Lever::FewerRequests,
            "Fewer at once: a smaller batch_size, shorter pieces of sound, beam_size 1",
            NOT_NUMBERS,
        );
        self.join(Lever::FewerRequests, &[Lever::MicroBatch, Lever::ShorterSequence], "");
    }

    fn weights(&mut self) {
        if self.case.reads_onto_the_device() {
            self.free_checkpoint();
        }
        if self.case.passes(&["max_batch_size", "cache_k", "cache_v", "kv_cache", "KVCache"]) {
            self.fewer_prompts(
                "A smaller cache: room for fewer prompts (max_batch_size 1) and fewer tokens (max_seq_len)",
            );
        }
        let size = self.case.size_of_weights();
        match self.case.loads_in_half() {
            true => {
                self.quantized_weights(&format!(
                    "weights in 8 or 4 bits (bitsandbytes, a GPTQ or AWQ file{size}), or a smaller model"
                ));
                self.join(Lever::Quantize, &[Lever::SmallerModel], "");
            }
            false => {
                self.quantized_weights(&format!(
                    "weights in fewer bytes: half precision (torch_dtype=torch.bfloat16, model.half()), 8 or 4 bits \
                     (bitsandbytes{size}), or a smaller model"
                ));
                self.join(Lever::Quantize, &[Lever::SmallerModel, Lever::Precision], "");
            }
        }
        self.offload();
        let words = "; or spread over several cards, which the same switch does, or a card with more memory";
        self.join(Lever::Offload, &[Lever::MoreCards, Lever::MoreMemory], words);
        self.other_card();
        self.add(Lever::MoreCards, "Several cards for one model: device_map=\"auto\" with all of them visible", ALL);
    }

    fn session(&mut self) {
        self.add(
            Lever::FewerRequests,
            "A smaller batch or smaller inputs for each run of the session, and fewer runs side by side (threads)",
            NOT_NUMBERS,
        );
        self.join(Lever::FewerRequests, &[Lever::MicroBatch, Lever::SmallerInput, Lever::FewerWorkers], "");
        self.add(
            Lever::LeaveRoom,
            "Let ONNX Runtime's arena grow by no more than is asked: arena_extend_strategy=kSameAsRequested, gpu_mem_limit of the CUDA \
             provider, one session on the card",
            ALL,
        );
        self.join(Lever::LeaveRoom, &[Lever::Offload], "; or the CPU provider, slowly");
        self.quantized_weights("a model in fp16 or int8");
    }

    fn quantized_weights(&mut self, what: &str) {
        self.add(Lever::Quantize, format!("{}; answers differ a little", sentence(what)), NOT_MODEL);
    }
}
