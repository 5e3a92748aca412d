//! The CUDA runtime and driver, outside any caching allocator, and short echoes of PyTorch's error.

use crate::message::Message;
use crate::phrase::{has_any, number_after, size_after};
use crate::talk::is_only_mentioned;
use crate::{Certainty, DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if let Some(oom) = class_named(message) {
        return Some(oom);
    }
    let certainty = anchor(line)?;
    if has_any(line, PINNED) {
        return Some(Oom { certainty, ..Oom::host(Engine::Cuda, Source::Runtime) });
    }
    Some(Oom {
        certainty,
        device_kind: Some(DeviceKind::Cuda),
        device: number_after(line, "on device ").or_else(|| number_after(line, "cuda:")),
        requested: [
            "Tried to allocate ",
            "tried to allocate ",
            "failed to allocate ",
            "Failed to allocate ",
            "trying to allocate ",
        ]
        .into_iter()
        .find_map(|phrase| size_after(line, phrase)),
        ..Oom::device(Engine::Cuda, Source::Runtime)
    })
}

/// Pinned memory is the machine's.
const PINNED: &[&str] = &[
    "cudaHostAlloc",
    "cudaMallocHost",
    "cuMemHostAlloc",
    "cudaHostRegister",
    "hipHostMalloc",
    "pinned memory",
    "pin memory",
    "CachingHostAllocator",
];

/// `torch.OutOfMemoryError: ` and what it says, or nothing after it; notebooks leave the module out.
fn class_named(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let torch = ["torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "torch.xpu.OutOfMemoryError"];
    let is_short = line.trim_start().starts_with("OutOfMemoryError");
    let class = torch.into_iter().find(|class| line.contains(class)).or(is_short.then_some("OutOfMemoryError"))?;
    let (_, rest) = line.split_once(class)?;
    let is_raised = rest.trim().is_empty() || rest.starts_with(':') || rest.starts_with("('");
    is_raised.then(|| Oom {
        certainty: if is_short { Certainty::Possible } else { Certainty::Sure },
        requested: size_after(message.body(), "Tried to allocate "),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    })
}

fn anchor(line: &str) -> Option<Certainty> {
    if has_any(line, STATUSES) {
        return Some(Certainty::Sure);
    }
    // The bare text of PyTorch's stream-ordered backend, as some tools cut it: only the whole line will do.
    if line.trim() == "Allocation on device" || line.trim_start().starts_with("Allocation on device 0 ") {
        return Some(Certainty::Possible);
    }
    let phrase = [
        "CUDA out of memory",
        "HIP out of memory",
        "GPU out of memory",
        "cuda out of memory",
        "CUDA ran out of memory",
        "out of GPU memory",
    ];
    let (at, phrase) = phrase.into_iter().find_map(|phrase| Some((line.find(phrase)?, phrase)))?;
    (!is_only_mentioned(line, at, at + phrase.len())).then_some(Certainty::Likely)
}

const STATUSES: &[&str] = &[
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUDA runtime error: out of memory",
    "CUDA Error: out of memory",
    "cuda runtime error (2)",
    "error=2 : out of memory",
    "CUDA error 2",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaMalloc failed: out of memory",
    "cudaMalloc failed",
    "[CUDA]: out of memory",
    "cudaHostAlloc failed",
    "cudaMallocHost failed",
    "cuMemAlloc failed: out of memory",
    "cuMemCreate failed: out of memory",
    "GPUassert: out of memory",
    "MUSA error: out of memory",
    "XPU error: out of memory",
];
