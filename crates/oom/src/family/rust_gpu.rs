//! GPU libraries in Rust: candle over cudarc, Burn over CubeCL, wgpu.

use crate::message::Message;
use crate::phrase::{has_any, size_after};
use crate::{DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("DriverError(CUDA_ERROR_OUT_OF_MEMORY") {
        let engine = if has_any(message.body(), &["cubecl", "burn"]) { Engine::Burn } else { Engine::Candle };
        return Some(Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(engine, Source::Runtime) });
    }
    if has_any(line, &["bytes of device memory", "can't allocate buffer of size", "out of device memory allocating"]) {
        return Some(Oom { requested: cubecl_size(line), ..Oom::device(Engine::Burn, Source::Allocator) });
    }
    if has_any(line, &["Not enough memory left", "wgpu error: Out of Memory"])
        || (line.contains("wgpu") && line.contains("OutOfMemory"))
    {
        return Some(Oom::device(Engine::Wgpu, Source::Runtime));
    }
    None
}

fn cubecl_size(line: &str) -> Option<lowtide_core::Bytes> {
    ["failed to reserve ", "allocate buffer of size: ", "device memory allocating "]
        .into_iter()
        .find_map(|phrase| size_after(line, phrase))
}
