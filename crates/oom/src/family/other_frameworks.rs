//! Frameworks with one message each: MXNet, MindSpore, OneFlow, spconv.

use crate::message::Message;
use crate::phrase::{has_any, number_after, size_after};
use crate::{DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("cudaMalloc retry failed: out of memory") {
        return Some(Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(Engine::Mxnet, Source::Allocator) });
    }
    if has_any(line, &["emory isn't enough and alloc failed", "emory not enough:"]) {
        return Some(mindspore(message.body()));
    }
    if line.contains("oneflow") && has_any(line, &["out of memory", "Out of memory", "OOM"]) {
        return Some(Oom {
            requested: size_after(line, "allocate "),
            ..Oom::device(Engine::Oneflow, Source::Allocator)
        });
    }
    if line.contains("cuda failed with error 2") {
        return Some(Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(Engine::Cuda, Source::Runtime) });
    }
    None
}

/// On a CPU it writes the same without naming a device.
fn mindspore(body: &str) -> Oom {
    let requested = size_after(body, "alloc size: ").or_else(|| size_after(body, "alloc size:"));
    let device = number_after(body, "Device(id:");
    let names_device = has_any(body, &["Device(id:", "Device memory"]);
    let base = if names_device {
        Oom::device(Engine::Mindspore, Source::Allocator)
    } else {
        Oom::host(Engine::Mindspore, Source::Allocator)
    };
    Oom { requested, device, ..base }
}
