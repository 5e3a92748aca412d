//! Servers of language models, which reckon before they begin: vLLM, sglang, TGI, ollama.
//!
//! None of them was refused by an allocator. What they say is exact all the same: what is free, what there is in all, what the
//! settings ask for.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{figure_after, has_any, size_after};
use crate::{Certainty, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    vllm(message)
        .or_else(|| sglang(line))
        .or_else(|| tgi(line))
        .or_else(|| ollama(line))
        .or_else(|| lm_studio(line))
        .or_else(|| flashinfer(line))
        .or_else(|| lmdeploy(line))
}

fn vllm(message: &Message<'_>) -> Option<Oom> {
    if !has_any(&message.line, &["KV cache", "KV cach", "desired GPU", "cache blocks"]) {
        return None;
    }
    if let Some(text) = message.around("less than desired GPU memory utilization") {
        return Some(too_little_at_the_start(&text));
    }
    if let Some(text) = message.around("larger than the available KV cache memory (") {
        let needed = text.split(" KV cache is needed").next().and_then(|head| head.rsplit('(').next());
        let requested = needed.and_then(|needed| size_after(needed, ""));
        let free = size_after(&text, "available KV cache memory (");
        return Some(Oom { requested, free, ..Oom::device(Engine::Vllm, Source::Startup) });
    }
    let refusals = [
        "is larger than the maximum number of tokens that can be stored in KV cache",
        "No available memory for the cache blocks",
    ];
    let is_refused = refusals.iter().any(|refusal| message.around(refusal).is_some());
    is_refused.then(|| Oom::device(Engine::Vllm, Source::Startup))
}

/// `Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB).`
fn too_little_at_the_start(line: &str) -> Oom {
    let inside = line.split_once("Free memory on device").and_then(|(_, rest)| rest.split_once('('));
    let (free, capacity) = inside.and_then(|(_, rest)| rest.split_once('/')).unzip();
    let capacity = capacity.and_then(|capacity| size_after(capacity, ""));
    // The unit stands behind the second figure alone.
    let free = free.and_then(|free| free.trim().parse::<f64>().ok()).map(|gib| Bytes::from_mib((gib * 1024.0) as u64));
    let wanted = line.split_once("memory utilization (").and_then(|(_, rest)| rest.split_once(", "));
    let requested = wanted.and_then(|(_, size)| size_after(size, ""));
    Oom { requested, free, capacity, ..Oom::device(Engine::Vllm, Source::Startup) }
}

/// `Not enough memory. Please try to increase --mem-fraction-static.`, `Prefill out of memory. Try to lower your batch size.`
fn sglang(line: &str) -> Option<Oom> {
    if line.contains(" out of memory. Try to lower your batch size") {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::device(Engine::Sglang, Source::Allocator) });
    }
    let is_refused = line.contains("Not enough memory") && line.contains("--mem-fraction-static");
    is_refused.then(|| Oom::device(Engine::Sglang, Source::Startup))
}

/// `Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens``
fn tgi(line: &str) -> Option<Oom> {
    let is_refused = line.contains("Not enough memory to handle ") && line.contains(" tokens");
    is_refused.then(|| Oom::device(Engine::Tgi, Source::Startup))
}

/// `model requires more system memory (19.3 GiB) than is available (14.8 GiB)`
fn ollama(line: &str) -> Option<Oom> {
    let is_refused = line.contains("requires more system memory") && line.contains("than is available");
    is_refused.then(|| Oom {
        certainty: Certainty::Sure,
        requested: figure_after(line, "system memory (").and_then(|figure| figure.memory()),
        free: size_after(line, "than is available ("),
        ..Oom::host(Engine::Ollama, Source::Startup)
    })
}

/// `Model loading was stopped due to insufficient system resources. ... requires approximately 15.89 GB of memory`
fn lm_studio(line: &str) -> Option<Oom> {
    line.contains("stopped due to insufficient system resources").then(|| Oom {
        requested: size_after(line, "requires approximately "),
        ..Oom::host(Engine::Ggml, Source::Startup)
    })
}

/// `RuntimeError: No enough gpu memory for runtime.`
fn lmdeploy(line: &str) -> Option<Oom> {
    line.contains("No enough gpu memory for runtime").then(|| Oom::device(Engine::Unknown, Source::Startup))
}

/// `Failed to allocate memory for batch_prefill_tmp_v with size 435814400 and alignment 16 in AlignedAllocator`: the workspace
/// that a server gave to its attention kernels.
fn flashinfer(line: &str) -> Option<Oom> {
    line.contains("in AlignedAllocator").then(|| Oom {
        certainty: Certainty::Likely,
        requested: size_after(line, "with size "),
        ..Oom::device(Engine::Unknown, Source::Allocator)
    })
}
