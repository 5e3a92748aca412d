//! Arrays on the host: numpy, pandas, Arrow, R.

use lowtide_core::Bytes;

use crate::dtype::tensor_bytes;
use crate::message::Message;
use crate::phrase::{between, has_any, size_after};
use crate::{Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["nable to allocate ", "ArrayMemoryError"])
        && has_any(message.body(), &["for an array with shape", "ArrayMemoryError", "bytes for "])
    {
        return Some(Oom {
            requested: size_after(message.body(), "nable to allocate "),
            ..Oom::host(Engine::Numpy, Source::Heap)
        });
    }
    if line.contains("nable to allocate array with shape") {
        return Some(Oom { requested: by_shape(message.body()), ..Oom::host(Engine::Numpy, Source::Heap) });
    }
    if line.contains("malloc of size ") || line.contains("realloc of size ") || line.contains("ArrowMemoryError") {
        return Some(Oom { requested: size_after(line, "alloc of size "), ..Oom::host(Engine::Arrow, Source::Heap) });
    }
    if line.contains("cannot allocate vector of size ") {
        return Some(Oom { requested: size_after(line, "vector of size "), ..Oom::host(Engine::R, Source::Heap) });
    }
    None
}

/// Before 1.18 numpy gave no size: `Unable to allocate array with shape (100, 100) and data type float64`.
fn by_shape(body: &str) -> Option<Bytes> {
    let dtype = body.split("data type ").nth(1)?.split_whitespace().next()?;
    tensor_bytes(between(body, "shape (", ")")?, dtype)
}
