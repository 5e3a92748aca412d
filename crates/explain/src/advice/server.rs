//! Servers of language models: which one a log is of, and what each calls its settings.

use lowtide_oom::Engine;

use super::case::Case;
use super::reduction::{Dial, reduced};
use crate::log::{Flag, Sign, dummy_requests};

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

    pub(super) const fn context(self) -> &'static str {
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

    pub(super) const fn share(self) -> Option<&'static str> {
        match self {
            Self::Vllm => Some("--gpu-memory-utilization"),
            Self::Sglang => Some("--mem-fraction-static"),
            Self::TextGenerationInference => Some("--cuda-memory-fraction"),
            Self::TensorRtLlm => Some("kv_cache_free_gpu_mem_fraction"),
            Self::LmDeploy => Some("--cache-max-entry-count (cache_max_entry_count)"),
            Self::Ollama | Self::Ggml => None,
        }
    }

    /// The flag for layers on the card.
    pub(super) const fn layers(self) -> Option<&'static str> {
        match self {
            Self::Ollama => Some("num_gpu"),
            Self::Ggml => Some("-ngl (--n-gpu-layers)"),
            _ => None,
        }
    }

    /// How the cache is kept in fewer bytes than it is; none where it is in the fewest that the server knows.
    pub(super) fn smaller_cache(self, case: &Case<'_>) -> Option<String> {
        let text = match (self, cache_bits(case)) {
            (Self::Ollama, Some(8)) => "OLLAMA_KV_CACHE_TYPE=q4_0 instead of 8 bits",
            (Self::Ggml, Some(8)) => "--cache-type-k q4_0 --cache-type-v q4_0 instead of 8 bits",
            (Self::LmDeploy, Some(8)) => "--quant-policy 4 instead of 8",
            (_, Some(_)) => return None,
            (Self::Vllm, None) => "--kv-cache-dtype fp8",
            (Self::Sglang, None) => "--kv-cache-dtype fp8_e5m2",
            (Self::TextGenerationInference, None) => "--kv-cache-dtype fp8_e4m3fn",
            (Self::TensorRtLlm, None) => "an fp8 or int8 KV cache",
            (Self::LmDeploy, None) => "--quant-policy 8",
            (Self::Ollama, None) if case.facts.flags.is_on(Flag::FlashAttention) => "OLLAMA_KV_CACHE_TYPE=q8_0",
            (Self::Ollama, None) => "OLLAMA_FLASH_ATTENTION=1 with OLLAMA_KV_CACHE_TYPE=q8_0",
            (Self::Ggml, None) if case.facts.flags.is_on(Flag::FlashAttention) => {
                "--cache-type-k q8_0 --cache-type-v q8_0"
            }
            (Self::Ggml, None) => "-fa with --cache-type-k q8_0 --cache-type-v q8_0",
        };
        Some(format!("Half of the cache's bytes: {text}"))
    }

    /// How fewer requests, or fewer tokens of them, are computed at once; none where there is one request already.
    pub(super) fn fewer_requests(self, case: &Case<'_>) -> Option<String> {
        let requests = |name, usual| Dial { name, usual, shown: case.requests_at_once(), least: 1 };
        let tokens = |name, usual| Dial { name, usual, shown: case.shown(Flag::BatchTokens), least: 256 };
        let piece = |name| Dial { name, usual: Some(128), shown: case.physical_batch(), least: 32 };
        let dials = match self {
            Self::Vllm => vec![requests("--max-num-seqs", Some(64)), tokens("--max-num-batched-tokens", Some(2048))],
            Self::Sglang => {
                vec![requests("--max-running-requests", None), tokens("--chunked-prefill-size", Some(2048))]
            }
            Self::TextGenerationInference => {
                let shown = case.shown(Flag::TotalTokens);
                let total = Dial { name: "--max-batch-total-tokens", usual: None, shown, least: 256 };
                vec![tokens("--max-batch-prefill-tokens", None), total]
            }
            Self::TensorRtLlm => vec![requests("max_batch_size", None), tokens("max_num_tokens", None)],
            Self::LmDeploy => vec![requests("--max-batch-size", Some(32)), tokens("max_prefill_token_num", None)],
            Self::Ollama => vec![requests("OLLAMA_NUM_PARALLEL", Some(1)), piece("num_batch")],
            Self::Ggml => vec![piece("-ub")],
        };
        let list: Vec<String> = dials.iter().filter_map(Dial::lowered).collect();
        let list = list.join(", ");
        let text = match self {
            _ if list.is_empty() => return None,
            Self::TensorRtLlm => format!("an engine built with {list}"),
            Self::Ggml => format!("{list} (the physical batch), which shrinks the buffer for computing"),
            _ => list,
        };
        Some(format!("Less computed at once: {text}; the same answers, fewer at a time"))
    }

    /// How the context is made shorter; none where it is short already.
    pub(super) fn shorter_context(self, case: &Case<'_>) -> Option<String> {
        let name = self.context();
        let shown = case.context();
        Some(match (case.longest_text().filter(|longest| shown.is_none_or(|shown| *longest < shown)), shown) {
            (Some(longest), _) => format!("{name} {longest}, the longest that fits as it is"),
            (None, Some(shown)) => {
                format!("{name} {} or less instead of {shown}", reduced(None, Some(shown), LEAST_CONTEXT)?)
            }
            (None, None) => name.to_owned(),
        })
    }

    /// Fewer requests side by side where each has a context of its own, and smaller pieces of them.
    pub(super) fn fewer_contexts(self, case: &Case<'_>) -> Option<String> {
        let (slots, piece) = match self {
            Self::Ggml => ("-np 1", "-ub"),
            Self::Ollama => ("OLLAMA_NUM_PARALLEL=1", "num_batch"),
            _ => return None,
        };
        let is_one = case.requests_at_once() == Some(1);
        let piece = Dial { name: piece, usual: Some(128), shown: case.physical_batch(), least: 32 }.lowered();
        let what = if self == Self::Ggml { "a smaller physical batch" } else { "a smaller batch" };
        match (is_one, piece) {
            (false, Some(piece)) => Some(format!("; or fewer requests at once ({slots}), and {what} ({piece})")),
            (false, None) => Some(format!("; or fewer requests at once ({slots})")),
            (true, Some(piece)) => Some(format!("; or {what} ({piece})")),
            (true, None) => None,
        }
    }
}

/// A context of fewer tokens serves nobody.
const LEAST_CONTEXT: u64 = 512;

/// In how many bits the cache is already, where that is fewer than 16.
fn cache_bits(case: &Case<'_>) -> Option<u64> {
    let value = case.facts.flags.value(Flag::CacheType)?;
    match value {
        "4" | "q4_0" | "q4_1" | "iq4_nl" | "q5_0" | "q5_1" => Some(4),
        "8" | "q8_0" => Some(8),
        value if ["fp8", "int8", "nvfp4", "fp4"].iter().any(|bits| value.contains(bits)) => Some(8),
        _ => None,
    }
}

impl Case<'_> {
    /// The number that the log or a command gives a flag.
    pub(super) fn shown(&self, flag: Flag) -> Option<u64> {
        self.facts.flags.number(flag)
    }

    /// Requests that are computed at once, as set or as the message counts those of a warm-up.
    pub(super) fn requests_at_once(&self) -> Option<u64> {
        self.dummy_requests().or_else(|| self.shown(Flag::Requests))
    }

    /// Requests that the sampler was warmed up with.
    pub(super) fn dummy_requests(&self) -> Option<u64> {
        dummy_requests(self.message)
    }

    /// Tokens of one request's context, as set or as the program prints it.
    pub(super) fn context(&self) -> Option<u64> {
        self.shown(Flag::Context)
    }

    pub(super) fn physical_batch(&self) -> Option<u64> {
        self.shown(Flag::PhysicalBatch)
    }

    /// The longest text that fits, where the server worked it out.
    pub(super) fn longest_text(&self) -> Option<u64> {
        let words = ["stored in KV cache (", "maximum model length is ", "estimated maximum model length is "];
        let (_, rest) = words.iter().find_map(|words| self.message.split_once(words))?;
        let digits: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        digits.parse().ok().filter(|length| *length > 0)
    }
}

fn is_ollama(case: &Case<'_>) -> bool {
    case.message.contains("ollama") || case.shows(Sign::Ollama)
}
