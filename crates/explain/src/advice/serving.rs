//! Servers of language models: nobody trains there, so no gradient, no optimizer and no recompute is spoken of.

use lowtide_core::Bytes;
use lowtide_oom::{Engine, Place};

use super::list::{Fidelity, List, NOT_MODEL};
use crate::{Cause, Lever};

/// A server, by the words of its own flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    Vllm,
    Sglang,
    Ollama,
    /// llama.cpp and what is built on ggml.
    Ggml,
}

/// The model answers as before, from less text.
const NOT_CONTEXT: Fidelity = Fidelity { batch: true, model: true, numbers: false };

impl Server {
    pub(super) const fn of(engine: Engine) -> Option<Self> {
        match engine {
            Engine::Vllm => Some(Self::Vllm),
            Engine::Sglang => Some(Self::Sglang),
            Engine::Ollama => Some(Self::Ollama),
            Engine::Ggml => Some(Self::Ggml),
            _ => None,
        }
    }

    const fn context(self) -> &'static str {
        match self {
            Self::Vllm => "--max-model-len (the message names the longest that fits, where it could work it out)",
            Self::Sglang => "--context-length",
            Self::Ollama => "num_ctx, or OLLAMA_CONTEXT_LENGTH",
            Self::Ggml => "-c (--ctx-size), and fewer slots at once (-np)",
        }
    }

    const fn cache_type(self) -> &'static str {
        match self {
            Self::Vllm => "--kv-cache-dtype fp8",
            Self::Sglang => "--kv-cache-dtype fp8_e5m2",
            Self::Ollama => "OLLAMA_FLASH_ATTENTION=1 with OLLAMA_KV_CACHE_TYPE=q8_0",
            Self::Ggml => "-fa with --cache-type-k q8_0 --cache-type-v q8_0",
        }
    }

    const fn share(self) -> Option<&'static str> {
        match self {
            Self::Vllm => Some("--gpu-memory-utilization"),
            Self::Sglang => Some("--mem-fraction-static"),
            Self::Ollama | Self::Ggml => None,
        }
    }

    const fn layers(self) -> Option<&'static str> {
        match self {
            Self::Vllm | Self::Sglang => None,
            Self::Ollama => Some("num_gpu"),
            Self::Ggml => Some("-ngl (--n-gpu-layers)"),
        }
    }
}

impl List<'_> {
    /// What a server can be told.
    pub(super) fn serving(&mut self, server: Server) {
        let case = self.case;
        if case.judgement.cause == Cause::OtherProcess {
            self.other_process();
            if let Some(share) = server.share() {
                self.add(Lever::LeaveRoom, smaller_share(share, case.oom.free, case.oom.capacity));
            }
        }
        if let Some(layers) = server.layers().filter(|_| case.oom.place == Place::Device) {
            let text = format!("Fewer layers on the GPU, the others on the host: {layers}; answers come more slowly");
            self.add(Lever::FewerLayers, text);
        }
        let text = format!("A shorter context: {}; the cache of keys and values grows with it", server.context());
        self.push(Lever::ShorterSequence, text, None, NOT_CONTEXT);
        if let Some(share) = server.share().filter(|_| case.judgement.cause != Cause::OtherProcess) {
            let text = format!("A larger share of the card, where nothing else is on it: {share} up to 0.95");
            self.add(Lever::RaiseLimit, text);
        }
        let text = format!("Half of the cache's bytes: {}", server.cache_type());
        self.push(Lever::CacheType, text, None, NOT_CONTEXT);
        if server == Server::Ggml && case.oom.place == Place::Device {
            self.add(Lever::MicroBatch, "A smaller physical batch: -ub 128 shrinks the buffer for computing");
        }
        if matches!(server, Server::Vllm | Server::Sglang) {
            self.add(Lever::MoreCards, "More cards for one model: --tensor-parallel-size 2");
        }
        let text = "Weights in fewer bits (a 4-bit file of the same model), or a smaller model";
        self.push(Lever::Quantize, text, None, NOT_MODEL);
        if case.oom.place == Place::Host {
            self.add(
                Lever::MoreMemory,
                "Run where there is more memory, or add swap so that the end comes as slowness instead",
            );
        }
    }
}

/// The share that what is free allows, with a little room left.
fn smaller_share(flag: &str, free: Option<Bytes>, capacity: Option<Bytes>) -> String {
    let share = free.zip(capacity).filter(|(_, capacity)| !capacity.is_zero()).map(|(free, capacity)| {
        let percent = (u128::from(free.get()) * 100 / u128::from(capacity.get())).saturating_sub(1);
        format!(" {}.{:02}", percent / 100, percent % 100)
    });
    let share = share.unwrap_or_default();
    format!("Ask for no more than is free: {flag}{share}; what weights and cache need has to fit into that")
}
