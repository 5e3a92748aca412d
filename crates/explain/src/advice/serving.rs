//! Servers of language models: nobody trains there, so no gradient, no optimizer and no recompute is spoken of.

use lowtide_core::Bytes;
use lowtide_oom::{Engine, Place, Source};

use super::case::Case;
use super::list::{Fidelity, Gain, List, NOT_MODEL};
use crate::cause::cache_need;
use crate::log::Sign;
use crate::{Cause, Lever};

/// A server, by the words of its own flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    Vllm,
    Sglang,
    /// Hugging Face's text-generation-inference.
    TextGenerationInference,
    TensorRtLlm,
    LmDeploy,
    Ollama,
    /// llama.cpp and what is built on ggml.
    Ggml,
}

/// vLLM's word for a share that weights and the first computation fill.
const NO_BLOCKS: &str = "No available memory for the cache blocks";

/// The model answers as before, from less text.
const NOT_CONTEXT: Fidelity = Fidelity { batch: true, model: true, numbers: false };

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

impl Server {
    pub(super) fn of(case: &Case<'_>) -> Option<Self> {
        // CTranslate2's words; whisper.cpp's are others.
        if case.message.contains("CUDA failed with error") {
            return None;
        }
        // vLLM's own allocator, by which a trainer lets it sleep and wakes it up.
        if case.message.contains("cumem_allocator") {
            return Some(Self::Vllm);
        }
        // What it asks to lower is vLLM's own.
        if case.message.contains("max_num_seqs") {
            return Some(Self::Vllm);
        }
        match case.oom.engine {
            Engine::Vllm => return Some(Self::Vllm),
            Engine::Tgi => return Some(Self::TextGenerationInference),
            Engine::Sglang => return Some(Self::Sglang),
            Engine::Ollama => return Some(Self::Ollama),
            Engine::Ggml => return Some(if is_ollama(case) { Self::Ollama } else { Self::Ggml }),
            _ => {}
        }
        // A trainer of answers has a server inside: where the stack ends there, it is the server's share that counts.
        let mut last = case.frames.iter().rev().take(3).map(|frame| frame.file.replace('\\', "/"));
        if last.any(|file| file.contains("/vllm/")) {
            return Some(Self::Vllm);
        }
        if case.trains() {
            return None;
        }
        let signs = [
            (Sign::Vllm, Self::Vllm),
            (Sign::Sglang, Self::Sglang),
            (Sign::TextGenerationInference, Self::TextGenerationInference),
            (Sign::TensorRtLlm, Self::TensorRtLlm),
            (Sign::LmDeploy, Self::LmDeploy),
            (Sign::Ollama, Self::Ollama),
            (Sign::Ggml, Self::Ggml),
        ];
        signs.into_iter().find_map(|(sign, server)| case.shows(sign).then_some(server))
    }

    const fn context(self) -> &'static str {
        match self {
            Self::Vllm => "--max-model-len",
            Self::Sglang => "--context-length",
            Self::TextGenerationInference => "--max-total-tokens and --max-input-tokens",
            Self::TensorRtLlm => "max_seq_len, max_num_tokens",
            Self::LmDeploy => "--session-len (session_len)",
            Self::Ollama => "num_ctx, or OLLAMA_CONTEXT_LENGTH",
            Self::Ggml => "-c (--ctx-size)",
        }
    }

    const fn cache_type(self) -> &'static str {
        match self {
            Self::Vllm => "--kv-cache-dtype fp8",
            Self::Sglang => "--kv-cache-dtype fp8_e5m2",
            Self::TextGenerationInference => "--kv-cache-dtype fp8_e4m3fn",
            Self::TensorRtLlm => "an fp8 or int8 KV cache",
            Self::LmDeploy => "--quant-policy 8",
            Self::Ollama => "OLLAMA_FLASH_ATTENTION=1 with OLLAMA_KV_CACHE_TYPE=q8_0",
            Self::Ggml => "-fa with --cache-type-k q8_0 --cache-type-v q8_0",
        }
    }

    const fn share(self) -> Option<&'static str> {
        match self {
            Self::Vllm => Some("--gpu-memory-utilization"),
            Self::Sglang => Some("--mem-fraction-static"),
            Self::TextGenerationInference => Some("--cuda-memory-fraction"),
            Self::TensorRtLlm => Some("kv_cache_free_gpu_mem_fraction"),
            Self::LmDeploy => Some("--cache-max-entry-count (cache_max_entry_count)"),
            Self::Ollama | Self::Ggml => None,
        }
    }

    const fn layers(self) -> Option<&'static str> {
        match self {
            Self::Ollama => Some("num_gpu"),
            Self::Ggml => Some("-ngl (--n-gpu-layers)"),
            _ => None,
        }
    }

    /// How fewer requests, or fewer tokens of them, are computed at once.
    const fn fewer_requests(self) -> &'static str {
        match self {
            Self::Vllm => "--max-num-seqs 64, --max-num-batched-tokens 2048",
            Self::Sglang => "--max-running-requests, --chunked-prefill-size 2048",
            Self::TextGenerationInference => "--max-batch-prefill-tokens (half of it), --max-batch-total-tokens",
            Self::TensorRtLlm => "an engine built with a smaller max_batch_size and max_num_tokens",
            Self::LmDeploy => "--max-batch-size 32, a smaller max_prefill_token_num",
            Self::Ollama => "OLLAMA_NUM_PARALLEL=1, num_batch 128",
            Self::Ggml => "-ub 128 (the physical batch), which shrinks the buffer for computing",
        }
    }
}

fn is_ollama(case: &Case<'_>) -> bool {
    case.message.contains("ollama") || case.shows(Sign::Ollama)
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

    /// Whether weights were on their way to the card, before any cache was made.
    fn loads_weights(&self) -> bool {
        let words =
            ["load_weights", "model_loader", "_initialize_model", "create_weights", "load_model(", "utils/weights.py"];
        self.passes(&words)
    }

    /// Whether one buffer is larger than all weights in half precision: then it is for the context.
    fn asks_for_more_than_weights(&self) -> bool {
        let weights = self.facts.log.named_parameters.map(|count| Bytes(count.saturating_mul(2)));
        self.oom.requested.zip(weights).is_some_and(|(asked, weights)| asked > weights)
    }

    /// The longest text that fits, where the server worked it out.
    fn longest_text(&self) -> Option<u64> {
        let words = ["stored in KV cache (", "maximum model length is ", "estimated maximum model length is "];
        let (_, rest) = words.iter().find_map(|words| self.message.split_once(words))?;
        let digits: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        digits.parse().ok().filter(|length| *length > 0)
    }
}

impl List<'_> {
    /// What a server can be told.
    pub(super) fn serving(&mut self, server: Server) {
        let case = self.case;
        let is_device = case.oom.place == Place::Device || !matches!(server, Server::Ollama | Server::Ggml);
        if case.judgement.cause == Cause::OtherProcess {
            self.other_process();
            if let Some(share) = server.share().filter(|_| !case.loads_weights()) {
                self.add(Lever::LeaveRoom, smaller_share(share, case.oom.free, case.oom.capacity));
                self.other_card();
            }
        }
        let wanted = case.wanted();
        if !is_device {
            return self.serving_from_host(server, wanted);
        }
        if case.judgement.cause == Cause::Limit {
            self.raise_share(server);
        }
        if case.is_clearly_in_pieces() {
            self.expandable();
        }
        // No tensor but a matrix of scores is larger than the card.
        if case.makes_scores() || case.oom.requested.zip(case.oom.capacity).is_some_and(|(asked, all)| asked > all) {
            self.attention_kernel();
        }
        // Where nothing is left for a cache, none of any length fits: the share or the weights are what there is to change.
        if case.message.contains(NO_BLOCKS) {
            self.raise_share(server);
            self.lighter_weights(server);
            let words =
                format!("; or a shorter context ({}), which is computed once for a try before", server.context());
            self.join(Lever::Quantize, &[Lever::ShorterSequence], &words);
        }
        // What is computed for a try before the cache is made, the share has no part in.
        if case.passes(&["profile_run", "profile_num_available_blocks", "determine_available_memory"]) {
            self.context(server);
            self.fewer_requests(server);
        }
        let is_too_heavy = case.weights_exceed_the_card() && wanted == Wanted::Unknown;
        if (case.loads_weights() || is_too_heavy) && server.layers().is_none() {
            self.lighter_weights(server);
        }
        if case.facts.log.physical_batch.is_some_and(|tokens| tokens > USUAL_PHYSICAL_BATCH) {
            self.fewer_requests(server);
        }
        if case.facts.log.context.is_some_and(|tokens| tokens > LARGE_CONTEXT) {
            self.context(server);
        }
        if server.layers().is_some() && case.asks_for_more_than_weights() {
            self.context(server);
            self.smaller_cache(server);
        }
        if let Some(layers) = server.layers() {
            let text = format!("Fewer layers on the GPU, the others on the host: {layers}; answers come more slowly");
            self.add(Lever::FewerLayers, text);
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
            let words = format!("; or a shorter context ({})", server.context());
            self.join(Lever::FewerRequests, &[Lever::ShorterSequence], &words);
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
                let words = format!("; or a shorter context ({})", server.context());
                self.join(Lever::FewerRequests, &[Lever::ShorterSequence], &words);
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
    fn lighter_weights(&mut self, server: Server) {
        let way = match server {
            Server::Vllm => " (--quantization awq, gptq or fp8)",
            Server::TextGenerationInference => " (--quantize bitsandbytes-nf4, or awq, gptq, eetq)",
            _ => "",
        };
        let text = format!("Weights in fewer bits{way}: a 4-bit file of the same model, or a smaller model");
        self.push(Lever::Quantize, text, Gain::default(), NOT_MODEL);
        self.join(Lever::Quantize, &[Lever::SmallerModel], "");
        if server != Server::TextGenerationInference {
            self.more_cards(server);
        }
    }

    fn more_cards(&mut self, server: Server) {
        let flag = match server {
            Server::Vllm | Server::Sglang | Server::TensorRtLlm => "--tensor-parallel-size",
            Server::TextGenerationInference => "--num-shard",
            Server::LmDeploy | Server::Ollama | Server::Ggml => return,
        };
        let text = match self.case.facts.log.cards.cards_of_a_model.filter(|cards| *cards > 1) {
            Some(cards) => format!("More cards for one model: {flag} {} instead of {cards}", cards * 2),
            None => format!("More cards for one model: {flag} 2"),
        };
        self.add(Lever::MoreCards, text);
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
        let text = "A smaller model, or its weights in fewer bits (a 4-bit file of the same model)";
        self.push(Lever::Quantize, text, Gain::default(), NOT_MODEL);
        let words = format!("; or a shorter context ({}), whose cache counts too", server.context());
        self.join(Lever::Quantize, &[Lever::ShorterSequence], &words);
        self.more_memory();
        self.context(server);
        self.smaller_cache(server);
    }

    fn context(&mut self, server: Server) {
        let longest = match self.case.longest_text() {
            Some(length) => format!(" {length}, the longest that fits as it is"),
            None => String::new(),
        };
        let text =
            format!("A shorter context: {}{longest}; the cache of keys and values grows with it", server.context());
        self.push(Lever::ShorterSequence, text, Gain::default(), NOT_CONTEXT);
        // Each request at once has a context of its own there.
        let slots = match server {
            Server::Ggml => "; or fewer requests at once (-np 1), and a smaller physical batch (-ub 128)",
            Server::Ollama => {
                "; or fewer requests at once (OLLAMA_NUM_PARALLEL=1), and a smaller batch (num_batch 128)"
            }
            _ => return,
        };
        self.join(Lever::ShorterSequence, &[Lever::FewerRequests], slots);
    }

    fn smaller_cache(&mut self, server: Server) {
        let text = format!("Half of the cache's bytes: {}", server.cache_type());
        self.push(Lever::CacheType, text, Gain::default(), NOT_CONTEXT);
    }

    fn fewer_requests(&mut self, server: Server) {
        let text = format!("Less computed at once: {}; the same answers, fewer at a time", server.fewer_requests());
        self.add(Lever::FewerRequests, text);
    }

    fn leave_room(&mut self, server: Server) {
        if let Some(share) = server.share() {
            let text =
                format!("Leave more room beside the cache: {share} lower by 0.05 to 0.1; fewer requests fit at once");
            self.add(Lever::LeaveRoom, text);
        }
    }

    fn eager_mode(&mut self, server: Server) {
        let flag = match server {
            Server::Sglang => "--disable-cuda-graph, or a smaller --cuda-graph-max-bs",
            _ => "--enforce-eager",
        };
        self.add(Lever::EagerMode, format!("No CUDA graphs: {flag}; answers come a little more slowly"));
    }

    fn raise_share(&mut self, server: Server) {
        let Some(share) = server.share().filter(|_| self.case.judgement.cause != Cause::OtherProcess) else { return };
        let given = self.case.facts.log.cards.share;
        let text = match exact_share(&self.case) {
            Some((percent, lacking)) if percent <= LARGEST_PERCENT => format!(
                "A larger share of the card, where nothing else is on it: {share} {}; the cache lacks {lacking}",
                hundredths(percent)
            ),
            Some((percent, lacking)) => format!(
                "A larger share of the card alone is not enough: the cache lacks {lacking}, for which {share} would have to be {}",
                hundredths(percent)
            ),
            None if given.is_some_and(|given| given >= FULL_SHARE) => return,
            None if given.is_some_and(|given| given * 100.0 >= LARGEST_PERCENT as f64) => {
                format!(
                    "A larger share of the card, where nothing else is on it: {share} up to {FULL_SHARE}, which leaves little beside"
                )
            }
            None => format!("A larger share of the card, where nothing else is on it: {share} up to 0.95"),
        };
        self.add(Lever::RaiseLimit, text);
    }
}

/// The largest share that leaves room for contexts and graphs, in hundredths.
const LARGEST_PERCENT: u64 = 95;

/// A share that has nothing left to give: a context takes the rest.
const FULL_SHARE: f64 = 0.98;

/// The share of the card, in hundredths, that the cache of one full request asks for, and what it lacks now.
fn exact_share(case: &Case<'_>) -> Option<(u64, Bytes)> {
    let cards = &case.facts.log.cards;
    if case.oom.source != Source::Startup {
        return None;
    }
    let (wanted, room) = cache_need(case.oom, case.message, cards)?;
    let (total, share) = (cards.total.filter(|total| !total.is_zero())?, cards.share?);
    let lacking = wanted.saturating_sub(room);
    let percent = (share * 100.0 + lacking.get() as f64 * 100.0 / total.get() as f64).ceil();
    (!lacking.is_zero()).then_some((percent as u64, lacking))
}

fn hundredths(percent: u64) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

/// The share that what is free allows, with a little room left.
fn smaller_share(flag: &str, free: Option<Bytes>, capacity: Option<Bytes>) -> String {
    let share = free.zip(capacity).filter(|(_, capacity)| !capacity.is_zero()).map(|(free, capacity)| {
        let percent = (u128::from(free.get()) * 100 / u128::from(capacity.get())).saturating_sub(1);
        format!(" {}", hundredths(percent as u64))
    });
    let share = share.unwrap_or_default();
    format!("Ask for no more than is free: {flag}{share}; what weights and cache need has to fit into that")
}
