//! Servers of language models: nobody trains there, so no gradient, no optimizer and no recompute is spoken of.

use lowtide_core::Bytes;
use lowtide_oom::{Engine, Place, Source};

use super::case::Case;
use super::list::{ALL, List, NOT_MODEL, NOT_NUMBERS};
use super::reduction::reduced;
use super::server::Server;
use crate::log::{Flag, Sign, WeightBits};
use crate::{Cause, Lever};

/// vLLM's word for a share that weights and the first computation fill.
const NO_BLOCKS: &str = "No available memory for the cache blocks";

/// llama.cpp's own physical batch.
const USUAL_PHYSICAL_BATCH: u64 = 512;
/// A context above this takes more than the weights of small models.
const LARGE_CONTEXT: u64 = 32_768;

/// What a server wanted the memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Cache,
    /// The buffer that a batch of tokens is computed in.
    Compute,
    Graphs,
    Unknown,
}

impl Case<'_> {
    fn wanted(&self) -> Wanted {
        let in_message = |words: &[&str]| words.iter().any(|word| self.message.contains(word));
        if self.shows(Sign::GraphCapture) {
            return Wanted::Graphs;
        }
        if in_message(&["compute buffer", "compute pp buffer", "gallocr"])
            || self.shows(Sign::ComputeBuffer) && !self.shows(Sign::Weights)
        {
            return Wanted::Compute;
        }
        if in_message(&["kv cache", "KV cache", "kv_cache"]) {
            return Wanted::Cache;
        }
        if self.shows(Sign::ComputeBuffer) {
            return Wanted::Compute;
        }
        match self.shows(Sign::KeyValueCache) {
            true => Wanted::Cache,
            false => Wanted::Unknown,
        }
    }

    /// A smaller model, where weights are in 4 bits or fewer already.
    pub(super) fn smaller_than_few_bits(&self, server: Server) -> Option<String> {
        match self.bits_of_weights(server) {
            WeightBits::Few(bits @ ..=4) => Some(format!("A smaller model: its weights are in {bits} bits already")),
            _ => None,
        }
    }

    /// Whether weights were on their way to the card, before any cache was made.
    pub(super) fn loads_weights(&self) -> bool {
        let words =
            ["load_weights", "model_loader", "_initialize_model", "create_weights", "load_model(", "utils/weights.py"];
        self.passes(&words)
    }

    /// Whether one buffer is larger than all weights in half precision: then it is for the context.
    fn asks_for_more_than_weights(&self) -> bool {
        let weights = self.facts.log.named_parameters.map(|count| Bytes(count.saturating_mul(2)));
        self.oom.requested.zip(weights).is_some_and(|(asked, weights)| asked > weights)
    }
}

/// A number of layers above it stands for all that there are.
const MOST_LAYERS: u64 = 98;

/// Weights that are lighter by a flag of the server's.
fn fewer_bits(way: &str) -> String {
    format!("Weights in fewer bits{way}: a 4-bit file of the same model, or a smaller model")
}

impl List<'_> {
    /// What a server can be told.
    pub(super) fn serving(&mut self, server: Server) {
        let case = self.case;
        let is_device = case.oom.place == Place::Device || !matches!(server, Server::Ollama | Server::Ggml);
        if case.judgement.cause == Cause::OtherProcess {
            self.other_process();
            self.fit_beside_others(server);
        }
        let wanted = case.wanted();
        if !is_device {
            return self.serving_from_host(server, wanted);
        }
        if case.has_too_little_for_weights() {
            self.other_process();
            self.lighter_weights(server);
        }
        if case.judgement.cause == Cause::Limit {
            self.raise_share(server);
        }
        if case.is_clearly_in_pieces() {
            self.expandable();
        }
        // No tensor but a matrix of scores is larger than the card; ggml has all weights of a card in one buffer.
        if server.layers().is_none() && (case.makes_scores() || case.exceeds_the_card()) {
            self.attention_kernel();
        }
        // Where nothing is left for a cache, none of any length fits: the share or the weights are what there is to change.
        if case.message.contains(NO_BLOCKS) {
            self.raise_share(server);
            self.lighter_weights(server);
            self.context_beside(Lever::Quantize, server, ", which is computed once for a try before");
        }
        // The logits of as many requests as there may be at once, each over the whole vocabulary.
        if case.dummy_requests().is_some() {
            self.fewer_requests(server);
            self.leave_room(server);
        }
        // What is computed for a try before the cache is made, the share has no part in.
        if case.passes(&["profile_run", "profile_num_available_blocks", "determine_available_memory"]) {
            self.context(server);
            self.fewer_requests(server);
        }
        let is_too_heavy = case.weights_exceed_the_card(server) && wanted == Wanted::Unknown;
        if (case.loads_weights() || is_too_heavy) && server.layers().is_none() {
            self.lighter_weights(server);
        }
        // A share, a cache or fewer requests make no room for weights.
        if case.loads_weights() && server.layers().is_none() {
            return self.more_cards(server);
        }
        if case.physical_batch().is_some_and(|tokens| tokens > USUAL_PHYSICAL_BATCH) {
            self.fewer_requests(server);
        }
        if server.layers().is_some() && case.context().is_some_and(|tokens| tokens > LARGE_CONTEXT) {
            self.context(server);
        }
        if server.layers().is_some() && case.asks_for_more_than_weights() {
            self.context(server);
            self.smaller_cache(server);
        }
        if server.layers().is_some() {
            self.fewer_layers(server);
            if wanted == Wanted::Unknown {
                let words = "; or a smaller file: the same model in fewer bits, or a smaller model";
                self.join(Lever::FewerLayers, &[Lever::Quantize, Lever::SmallerModel], words);
            }
        }
        match wanted {
            Wanted::Graphs => {
                self.eager_mode(server);
                self.leave_room(server);
                self.fewer_requests(server);
            }
            Wanted::Compute => self.fewer_requests(server),
            Wanted::Cache | Wanted::Unknown => {}
        }
        if case.oom.engine == Engine::Tgi {
            self.fewer_requests(server);
            self.context_beside(Lever::FewerRequests, server, "");
            self.lighter_weights(server);
        }
        // An engine's error while it runs, in PyTorch's words: the share is taken, and leaves too little to compute in.
        let is_running =
            !matches!(case.oom.engine, Engine::Vllm | Engine::Sglang | Engine::Tgi | Engine::Ollama | Engine::Ggml);
        if is_running {
            match server {
                Server::TextGenerationInference | Server::TensorRtLlm => self.fewer_requests(server),
                _ => {}
            }
            self.leave_room(server);
            self.fewer_requests(server);
            if case.longest_text().is_none() {
                self.context_beside(Lever::FewerRequests, server, "");
            }
        }
        self.context(server);
        if !is_running {
            if ["prefill tokens", "lower your batch size"].iter().any(|words| case.message.contains(words)) {
                self.fewer_requests(server);
            }
            self.raise_share(server);
        }
        self.smaller_cache(server);
        self.fewer_requests(server);
        self.more_cards(server);
        if matches!(server, Server::Vllm | Server::Sglang) {
            self.eager_mode(server);
        }
        self.lighter_weights(server);
    }

    /// What weights that do not fit ask for: no share of the card is large enough.
    pub(super) fn lighter_weights(&mut self, server: Server) {
        self.weights_in_fewer_bits(server);
        if server != Server::TextGenerationInference {
            self.more_cards(server);
        }
    }

    /// Weights in fewer bits than they are, or a smaller model; the lever of the two that comes first.
    fn weights_in_fewer_bits(&mut self, server: Server) -> Lever {
        if let Some(text) = self.case.smaller_than_few_bits(server) {
            self.add(Lever::SmallerModel, text, NOT_MODEL);
            return Lever::SmallerModel;
        }
        let text = match (self.case.bits_of_weights(server), server) {
            (WeightBits::Few(bits), _) => {
                format!("Weights in 4 bits instead of {bits}: another file of the same model, or a smaller model")
            }
            (WeightBits::All, Server::Vllm) => fewer_bits(" (--quantization awq, gptq or fp8)"),
            (WeightBits::All, Server::TextGenerationInference) => {
                fewer_bits(" (--quantize bitsandbytes-nf4, or awq, gptq, eetq)")
            }
            (WeightBits::All | WeightBits::Open, _) => fewer_bits(""),
        };
        self.add(Lever::Quantize, text, NOT_MODEL);
        self.join(Lever::Quantize, &[Lever::SmallerModel], "");
        Lever::Quantize
    }

    fn more_cards(&mut self, server: Server) {
        let flag = match server {
            Server::Vllm | Server::Sglang | Server::TensorRtLlm => "--tensor-parallel-size",
            Server::TextGenerationInference => "--num-shard",
            Server::LmDeploy | Server::Ollama | Server::Ggml => return,
        };
        let text = match self.case.shown(Flag::Cards).filter(|cards| *cards > 1) {
            Some(cards) => format!("More cards for one model: {flag} {} instead of {cards}", cards.saturating_mul(2)),
            None => format!("More cards for one model: {flag} 2"),
        };
        self.add(Lever::MoreCards, text, ALL);
    }

    /// A server that computes in the machine's memory, or checks it before it begins.
    fn serving_from_host(&mut self, server: Server, wanted: Wanted) {
        match wanted {
            Wanted::Compute => {
                self.fewer_requests(server);
                self.context(server);
            }
            Wanted::Cache => {
                self.context(server);
                self.smaller_cache(server);
            }
            Wanted::Graphs | Wanted::Unknown => {}
        }
        // A container that was ended at its limit may have more, where the machine has it.
        if matches!(self.case.oom.source, Source::Cgroup | Source::Scheduler) || self.case.shows(Sign::Container) {
            self.limit();
        }
        let lever = self.weights_in_fewer_bits(server);
        self.context_beside(lever, server, ", whose cache counts too");
        self.more_memory();
        self.context(server);
        self.smaller_cache(server);
    }

    fn context(&mut self, server: Server) {
        let Some(shorter) = server.shorter_context(&self.case) else { return };
        let text = format!("A shorter context: {shorter}; the cache of keys and values grows with it");
        self.add(Lever::ShorterSequence, text, NOT_NUMBERS);
        if let Some(fewer) = server.fewer_contexts(&self.case) {
            self.join(Lever::ShorterSequence, &[Lever::FewerRequests], &fewer);
        }
    }

    /// A shorter context in the sentence of another lever.
    fn context_beside(&mut self, lever: Lever, server: Server, why: &str) {
        if let Some(shorter) = server.shorter_context(&self.case) {
            self.join(lever, &[Lever::ShorterSequence], &format!("; or a shorter context ({shorter}){why}"));
        }
    }

    fn smaller_cache(&mut self, server: Server) {
        if let Some(text) = server.smaller_cache(&self.case) {
            self.add(Lever::CacheType, text, NOT_NUMBERS);
        }
    }

    fn fewer_requests(&mut self, server: Server) {
        if let Some(text) = server.fewer_requests(&self.case) {
            self.add(Lever::FewerRequests, text, ALL);
        }
    }

    fn fewer_layers(&mut self, server: Server) {
        let Some(name) = server.layers() else { return };
        let flags = self.case.facts.flags;
        let fewer = match (flags.value(Flag::GpuLayers), self.case.shown(Flag::GpuLayers)) {
            (Some("0"), _) => return,
            (_, Some(shown)) if shown <= MOST_LAYERS => match reduced(None, Some(shown), 0) {
                Some(half) => format!("{name} {half} instead of {shown}"),
                None => format!("{name} 0 instead of {shown}"),
            },
            (_, Some(all)) => format!("{name} below the number that the model has, for {all} stands for all of them"),
            _ => name.to_owned(),
        };
        let text = format!("Fewer layers on the GPU, the others on the CPU: {fewer}; answers come more slowly");
        self.add(Lever::FewerLayers, text, ALL);
    }

    fn eager_mode(&mut self, server: Server) {
        if self.case.facts.flags.is_on(Flag::Eager) {
            return;
        }
        let flag = match server {
            Server::Sglang => "--disable-cuda-graph, or a smaller --cuda-graph-max-bs",
            _ => "--enforce-eager",
        };
        self.add(Lever::EagerMode, format!("No CUDA graphs: {flag}; answers come a little more slowly"), ALL);
    }
}
