//! CUDA.jl and its siblings: the memory pools of Julia.

use crate::message::Message;
use crate::phrase::{size_after, size_before};
use crate::{DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    if !message.line.contains("Out of GPU memory trying to allocate ") {
        return None;
    }
    let body = message.body();
    // `Effective GPU memory usage: 99.20% (23.500 GiB/23.690 GiB)`
    let (used, capacity) = body
        .split_once("GPU memory usage: ")
        .and_then(|(_, rest)| rest.split_once('('))
        .and_then(|(_, rest)| rest.split_once('/'))
        .map_or((None, None), |(used, capacity)| (size_after(used, ""), size_after(capacity, "")));
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after(body, "trying to allocate "),
        used,
        capacity,
        free: capacity.zip(used).map(|(capacity, used)| capacity.saturating_sub(used)),
        allocated: size_after(body, "emory pool usage: "),
        reserved: size_before(body, " reserved)"),
        ..Oom::device(Engine::Julia, Source::Allocator)
    })
}
