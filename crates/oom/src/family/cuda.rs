//! The CUDA runtime and driver, outside any caching allocator, and short echoes of PyTorch's error.

use lowtide_core::Bytes;

use crate::message::{Message, without_prefix};
use crate::names::is_only_named;
use crate::phrase::{has_any, has_number_after, number_after, size_after};
use crate::talk::is_only_mentioned;
use crate::{Certainty, DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if let Some(oom) = class_named(message).or_else(|| slice_of_a_card(line)) {
        return Some(oom);
    }
    let Some(certainty) = status(line) else { return blender(line).or_else(|| words_of_the_allocator(line)) };
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
        capacity: size_after(line, "total memory reported: "),
        ..Oom::device(Engine::Cuda, Source::Runtime)
    })
}

/// `[HAMI-core ERROR (pid:25 thread=1 allocator.c:53)]: Device 0 OOM 27147995136 / 25757220864`: a cluster watches what a container
/// may take of a card, and refused what would have been held then.
fn slice_of_a_card(line: &str) -> Option<Oom> {
    let (_, refused) = line.split_once("[HAMI-core ERROR ")?.1.split_once(" OOM ")?;
    let limit = refused.split_once(" / ")?.1.split_whitespace().next()?.parse().ok()?;
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        device: number_after(line, "Device "),
        limit: Some(Bytes(limit)),
        ..Oom::device(Engine::Cuda, Source::Scheduler)
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
    // TensorFlow's: `failed to alloc 17179869184 bytes on host`
    "bytes on host",
];

/// `torch.OutOfMemoryError: ` and what it says, or nothing after it; notebooks leave the module out.
fn class_named(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let torch = ["torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "torch.xpu.OutOfMemoryError"];
    let is_short = without_prefix(line).trim_start_matches(['`', ' ']).starts_with("OutOfMemoryError");
    let class = torch.into_iter().find(|class| line.contains(class)).or(is_short.then_some("OutOfMemoryError"))?;
    let (head, rest) = line.split_once(class)?;
    // At the end of a sentence it is a word of it.
    let head = head.trim_end();
    let is_apart = head.is_empty() || head.ends_with([':', '*', ']', '>', '-', '|', '`', '"', '(', ')']);
    let is_raised = rest.trim().is_empty() && is_apart || rest.starts_with(':') || rest.starts_with("('");
    is_raised.then(|| Oom {
        certainty: if is_short && !rest.starts_with(": CUDA out of memory") {
            Certainty::Possible
        } else {
            Certainty::Sure
        },
        requested: size_after(message.body(), "Tried to allocate "),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    })
}

/// `System is out of GPU memory`, `CUDA error: Out of memory in cuMemAlloc(&device_pointer, size)`
fn blender(line: &str) -> Option<Oom> {
    has_any(line, &["System is out of GPU memory", ": Out of memory in cu", ": Out of memory in hip"])
        .then(|| Oom::device(Engine::Unknown, Source::Runtime))
}

/// PyTorch's allocator, cut before it says what it was asked for: the driver's own words are others.
fn words_of_the_allocator(line: &str) -> Option<Oom> {
    let kinds = [
        ("CUDA out of memory", DeviceKind::Cuda),
        ("cuda out of memory", DeviceKind::Cuda),
        ("GPU out of memory", DeviceKind::Cuda),
        ("HIP out of memory", DeviceKind::Hip),
        ("CUDA ran out of memory", DeviceKind::Cuda),
        ("out of GPU memory", DeviceKind::Cuda),
        ("CUDA OOM", DeviceKind::Cuda),
    ];
    let (at, phrase, kind) = kinds.into_iter().find_map(|(phrase, kind)| Some((line.find(phrase)?, phrase, kind)))?;
    let requested = size_after(line, "ried to allocate ").or_else(|| size_after(line, "trying to allocate "));
    // In short, as people write it: with what was asked for it is an error.
    let is_told = phrase != "CUDA OOM" || requested.is_some();
    (is_told && !is_only_mentioned(line, at, at + phrase.len())).then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(kind),
        device: number_after(line, "on device ").or_else(|| number_after(line, "cuda:")),
        requested,
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    })
}

/// Whether the runtime says that the device has no memory left.
pub(super) fn refuses(line: &str) -> bool {
    has_any(line, STATUSES) && !has_any(line, PINNED)
}

fn status(line: &str) -> Option<Certainty> {
    let is_call = || has_any(line, CALLS) && line.contains("out of memory");
    let is_reported = |status: &str| line.find(status).is_some_and(|at| !is_only_named(line, at, at + status.len()));
    if STATUSES.iter().any(|status| is_reported(status)) || has_number_after(line, "CUDA error", "2") || is_call() {
        return Some(Certainty::Sure);
    }
    // The bare text of PyTorch's stream-ordered backend, as some tools cut it: only the whole line will do, or its end.
    let line = line.trim_end();
    let is_bare = ["! Allocation on device", ": Allocation on device"].iter().any(|end| line.ends_with(end))
        || line.trim() == "Allocation on device";
    if is_bare || line.trim_start().starts_with("Allocation on device 0 ") {
        return Some(Certainty::Possible);
    }
    None
}

/// Calls that allocate, as programs quote the one that failed.
const CALLS: &[&str] =
    &["cudaMalloc(", "cudaMallocHost(", "cudaMallocManaged(", "cudaMallocAsync(", "cudaHostAlloc(", "cuMemAlloc("];

const STATUSES: &[&str] = &[
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUDA runtime error: out of memory",
    "CUDA Error: out of memory",
    "CUDA failed with error out of memory",
    "CUDA failure 2: out of memory",
    "cuda runtime error (2)",
    "error=2 : out of memory",
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
    // Caffe's.
    "cudaSuccess (2 vs. 0)",
];
