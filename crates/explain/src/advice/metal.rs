//! MLX on Apple's chips, where the card's memory is the machine's: its own switches, for answers and for training.

use super::list::{ALL, List, NOT_MODEL, NOT_NUMBERS};
use super::server::Server;
use crate::Lever;

impl List<'_> {
    /// Answers of a language model.
    pub(super) fn metal_texts(&mut self) {
        self.add(
            Lever::ShorterSequence,
            "A shorter context or prompt (--max-tokens, --max-kv-size, a truncated prompt): the cache of keys and values grows with \
             each token",
            NOT_NUMBERS,
        );
        self.join(Lever::ShorterSequence, &[Lever::FewerRequests], "; one prompt at a time");
        self.metal_weights();
        self.metal_cache();
        self.add(Lever::CacheType, "A smaller cache of keys and values: --kv-bits 8, or 4", NOT_NUMBERS);
    }

    /// Training, mostly of adapters by mlx_lm.
    pub(super) fn metal_training(&mut self) {
        self.micro_batch();
        self.add(
            Lever::ShorterSequence,
            "Shorter samples (--max-seq-length) or answers; memory grows with each token, and the model sees less context",
            NOT_NUMBERS,
        );
        self.metal_weights();
        self.add(
            Lever::Recompute,
            "Recompute activations in backward instead of keeping them (--grad-checkpoint, mx.checkpoint around each block); about \
             a third more time",
            ALL,
        );
        self.add(
            Lever::Adapters,
            "Train less: adapters (--fine-tune-type lora) in fewer layers (--num-layers 4)",
            NOT_NUMBERS,
        );
        self.metal_cache();
    }

    /// Weights in fewer bits; what is in few already is made smaller by a smaller model.
    fn metal_weights(&mut self) {
        let more = "; or a machine with more memory";
        if let Some(text) = self.case.smaller_than_few_bits(Server::Ggml) {
            self.add(Lever::SmallerModel, text, NOT_MODEL);
            return self.join(Lever::SmallerModel, &[Lever::MoreMemory], more);
        }
        let text =
            "A quantized model: a 4-bit file of it (mlx-community has many), or mlx_lm.convert -q; or a smaller model";
        self.add(Lever::Quantize, text, NOT_MODEL);
        self.join(Lever::Quantize, &[Lever::SmallerModel], "");
        self.join(Lever::Quantize, &[Lever::MoreMemory], more);
    }

    /// What MLX keeps of buffers that are free.
    fn metal_cache(&mut self) {
        self.add(
            Lever::EmptyCache,
            "Let MLX keep less: mx.clear_cache() between prompts or steps, mx.set_cache_limit(0) for the least; and close other \
             programs, because they share the memory",
            ALL,
        );
    }
}
