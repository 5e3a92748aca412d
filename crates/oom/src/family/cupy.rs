//! CuPy's memory pool.

use crate::message::Message;
use crate::phrase::size_after;
use crate::{DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let is_pool = line.contains("Out of memory allocating ") || line.contains("out of memory to allocate ");
    if !is_pool && !line.contains("cupy.cuda.memory.OutOfMemoryError") {
        return None;
    }
    let body = message.body();
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after(body, "Out of memory allocating ")
            .or_else(|| size_after(body, "out of memory to allocate ")),
        allocated: size_after(body, "allocated so far: ").or_else(|| size_after(body, "total ")),
        limit: size_after(body, "limit set to: "),
        ..Oom::device(Engine::Cupy, Source::Allocator)
    })
}
