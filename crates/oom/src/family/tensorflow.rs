//! TensorFlow: a tensor refused, the driver refused (often only a first try), the BFC allocator's warnings.

use lowtide_core::Bytes;

use crate::figure::{figure_at, tensor_bytes};
use crate::message::Message;
use crate::phrase::{between, has_any, number_after, size_after};
use crate::{Certainty, DeviceKind, Engine, Oom, Place, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("OOM when allocating tensor") {
        return Some(tensor(line, message.body()));
    }
    // Titles are often written in small letters; what stands in the message means the same.
    if line.contains("oom when allocating tensor") {
        let as_written = |text: &str| text.replace("device:gpu", "device:GPU").replace("device:cpu", "device:CPU");
        return Some(tensor(&as_written(line), &as_written(message.body())));
    }
    if line.contains("ailed to allocate") && line.contains("from device") {
        return Some(driver(line));
    }
    // A kernel that takes scratch space for itself.
    if line.contains("an out of GPU memory when allocating ") {
        let requested = size_after(message.body(), "memory when allocating ");
        let base = Oom::device(Engine::Tensorflow, Source::Allocator);
        return Some(Oom { requested, device: number_after(message.body(), "device:GPU:"), ..base });
    }
    // What a copy onto a full device ends by.
    if line.contains("Dst tensor is not initialized") {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::device(Engine::Tensorflow, Source::Allocator) });
    }
    let is_allocator = has_any(line, &["Allocator (", "bfc_allocator.cc"]);
    if is_allocator && line.contains("an out of memory trying to allocate") {
        // A try whose failure costs time and nothing else.
        return (!message.body().contains("not a failure")).then(|| bfc(line));
    }
    if line.contains("ResourceExhaustedError")
        && has_any(line, &["failed to allocate memory", "Out of memory"])
        && !line.contains("on GPU")
    {
        return Some(Oom::device(Engine::Tensorflow, Source::Allocator));
    }
    None
}

fn tensor(line: &str, body: &str) -> Oom {
    let on_host = has_any(line, &["device:CPU", "by allocator cpu", "by allocator mklcpu"])
        || (!has_any(line, &["device:", "by allocator"]) && has_host_node(body));
    let dtype = body.split(" and type ").nth(1).and_then(|rest| rest.split([' ', ']', ',']).next());
    let requested = between(body, "shape[", "]").zip(dtype).and_then(|(shape, dtype)| tensor_bytes(shape, dtype));
    Oom {
        place: if on_host { Place::Host } else { Place::Device },
        device_kind: Some(if on_host { DeviceKind::Cpu } else { DeviceKind::Cuda }),
        device: number_after(body, "device:GPU:").or_else(|| number_after(body, "device:CPU:")),
        requested,
        ..Oom::device(Engine::Tensorflow, Source::Allocator)
    }
}

/// `[[Node: ToFloat = Cast[..., _device="/job:localhost/replica:0/task:0/device:CPU:0"]]]`: where the node stands whose tensor was
/// refused, which the message itself does not say. The first one counts; those that follow send or receive.
fn has_host_node(body: &str) -> bool {
    let places = body.match_indices("_device=\"").filter(|(at, _)| body[..*at].ends_with([' ', ',', '[']));
    let first = places.map(|(at, name)| &body[at + name.len()..]).next();
    let place = first.and_then(|rest| rest.split('"').next()).unwrap_or_default();
    has_any(place, &["device:CPU:", "/cpu:"])
}

/// TensorFlow asks for nearly all of the device first and then for less, so the message alone is no end.
fn driver(line: &str) -> Oom {
    Oom {
        certainty: Certainty::Possible,
        requested: exact_in_parentheses(line).or_else(|| size_after(line, "ailed to allocate ")),
        device_kind: Some(DeviceKind::Cuda),
        ..Oom::device(Engine::Tensorflow, Source::Runtime)
    }
}

/// `17.79G (19104890880 bytes)`: the exact figure stands in parentheses.
pub(super) fn exact_in_parentheses(line: &str) -> Option<Bytes> {
    line.match_indices('(').find_map(|(at, _)| {
        let inner = line[at + 1..].split(')').next()?;
        let figure = figure_at(inner)?;
        let is_bytes = inner.ends_with("bytes") || inner.ends_with('B');
        (is_bytes && figure.length == inner.len()).then(|| figure.memory())?
    })
}

fn bfc(line: &str) -> Oom {
    let allocator = between(line, "Allocator (", ")").unwrap_or_default();
    let on_host = has_any(allocator, &["cpu", "host", "CPU", "Host"]);
    let engine = if has_any(line, &["xla/", "tsl/"]) { Engine::Xla } else { Engine::Tensorflow };
    Oom {
        place: if on_host { Place::Host } else { Place::Device },
        device: number_after(allocator, "GPU_"),
        requested: size_after(line, "(rounded to ").or_else(|| size_after(line, "trying to allocate ")),
        ..Oom::device(engine, Source::Allocator)
    }
}
