//! ONNX Runtime's arena.

use crate::message::Message;
use crate::phrase::{has_any, has_any_caseless, size_after};
use crate::{Certainty, Engine, Oom, Place, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let refused = has_any(
        line,
        &["Failed to allocate memory for requested buffer of size", "is smaller than requested bytes of"],
    );
    let crashed = line.contains("onnxruntime") && has_any(line, &["bad allocation", "std::bad_alloc", "out of memory"]);
    if !refused && !crashed {
        return None;
    }
    let on_device = has_any_caseless(line, &["cuda", "gpu", "rocm", "tensorrt", "dml"]);
    let on_host = has_any_caseless(line, &["cpu", "bad_alloc", "bad allocation"]) && !on_device;
    Some(Oom {
        place: if on_host { Place::Host } else { Place::Device },
        certainty: if on_device || on_host { Certainty::Sure } else { Certainty::Likely },
        requested: size_after(line, "requested buffer of size ").or_else(|| size_after(line, "requested bytes of ")),
        free: size_after(line, "Available memory of "),
        ..Oom::device(Engine::OnnxRuntime, Source::Allocator)
    })
}
