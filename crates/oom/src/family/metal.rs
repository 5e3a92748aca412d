//! Apple: PyTorch's MPS allocator and MLX.
//!
//! The MPS allocator divides by 1024 and prints `KB`, `MB`, `GB`; newer releases print `GiB`.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{has_any, size_after};
use crate::{Certainty, DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    if message.line.contains("MPS backend out of memory") {
        return Some(mps(message.body()));
    }
    if message.line.contains("[metal::malloc]") || message.line.contains("[malloc_or_wait]") {
        return Some(mlx(message.body(), Source::Allocator));
    }
    if message.line.contains("[METAL] Command buffer execution failed: Insufficient Memory") {
        return Some(mlx(message.body(), Source::Runtime));
    }
    // Metal's own status, whoever gave it the work.
    if message.line.contains("kIOGPUCommandBufferCallbackErrorOutOfMemory") {
        let text = format!("{}{}", message.lines_above(), message.line);
        let engine = match () {
            () if has_any(&text, &["[METAL]", "mlx"]) => Engine::Mlx,
            () if has_any(&text, &["Metal Performance Shaders", "MPS"]) => Engine::PyTorch,
            () if has_any(&text, &["ggml", "llama"]) => Engine::Ggml,
            () => Engine::Unknown,
        };
        return Some(Oom { device_kind: Some(DeviceKind::Mps), ..Oom::device(engine, Source::Runtime) });
    }
    if message.line.contains("Invalid buffer size: ") {
        let requested = size_after(message.body(), "Invalid buffer size: ");
        return Some(Oom {
            certainty: Certainty::Likely,
            requested,
            device_kind: Some(DeviceKind::Mps),
            ..Oom::device(Engine::PyTorch, Source::Allocator)
        });
    }
    None
}

fn mps(body: &str) -> Oom {
    let allocated = size_after(body, "MPS allocated: ");
    let other = size_after(body, "other allocations: ");
    let in_use = allocated.zip(other).map(|(ours, theirs)| Bytes(ours.get().saturating_add(theirs.get())));
    Oom {
        device_kind: Some(DeviceKind::Mps),
        requested: size_after(body, "Tried to allocate "),
        allocated,
        outside_allocator: other,
        in_use,
        limit: size_after(body, "max allowed: "),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    }
}

fn mlx(body: &str, source: Source) -> Oom {
    Oom {
        device_kind: Some(DeviceKind::Mps),
        requested: size_after(body, "ttempting to allocate ").or_else(|| size_after(body, "nable to allocate ")),
        limit: size_after(body, "maximum allowed buffer size of "),
        ..Oom::device(Engine::Mlx, source)
    }
}
