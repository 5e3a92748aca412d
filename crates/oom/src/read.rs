//! One message to one [`Oom`].

use crate::look_alike::{LookAlike, never_memory, resemblance};
use crate::{Certainty, Engine, Oom, Source, scan};

/// What is known about a message from outside its text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint<'a> {
    /// Class of the exception that carried it, such as `torch.OutOfMemoryError`.
    pub exception: Option<&'a str>,
}

/// Reads a message, of one line or many; where several lines report, the surest one counts.
#[must_use]
pub fn read(text: &str) -> Option<Oom> {
    read_bytes(text.as_bytes())
}

/// Reads a message of any bytes; what is not UTF-8 is read around.
#[must_use]
pub fn read_bytes(text: &[u8]) -> Option<Oom> {
    let mut best: Option<Oom> = None;
    for found in scan(text) {
        if best.as_ref().is_none_or(|best| found.oom.certainty > best.certainty) {
            best = Some(found.oom);
        }
    }
    best
}

/// Reads a message with what is known from outside: some are told by their class only.
#[must_use]
pub fn read_with(text: &str, hint: Hint<'_>) -> Option<Oom> {
    let told = hint.exception.and_then(by_exception);
    match (read(text), told) {
        (Some(oom), Some(told)) if oom.place == told.place => {
            Some(Oom { certainty: oom.certainty.max(told.certainty), ..oom })
        }
        (Some(oom), _) => Some(oom),
        (None, Some(told)) if !text.lines().any(|line| never_memory(line).is_some()) => Some(told),
        (None, _) => None,
    }
}

/// What a text that is no out-of-memory error, but resembles one, is instead.
///
/// `None` for a text that is one, and for a text that resembles none.
#[must_use]
pub fn look_alike(text: &str) -> Option<LookAlike> {
    if read(text).is_some() { None } else { resemblance(text) }
}

/// What the class of an exception tells by itself.
fn by_exception(class: &str) -> Option<Oom> {
    match class {
        "torch.OutOfMemoryError" | "torch.cuda.OutOfMemoryError" | "OutOfMemoryError" => {
            Some(Oom { certainty: Certainty::Likely, ..Oom::device(Engine::PyTorch, Source::Allocator) })
        }
        "MemoryError" => Some(Oom::host(Engine::Python, Source::Heap)),
        "numpy.core._exceptions._ArrayMemoryError" | "numpy._core._exceptions._ArrayMemoryError" => {
            Some(Oom::host(Engine::Numpy, Source::Heap))
        }
        "cupy.cuda.memory.OutOfMemoryError" => Some(Oom::device(Engine::Cupy, Source::Allocator)),
        "ray.exceptions.OutOfMemoryError" => Some(Oom::host(Engine::Ray, Source::Scheduler)),
        "java.lang.OutOfMemoryError" => Some(Oom::host(Engine::Java, Source::Heap)),
        "std::bad_alloc" => Some(Oom::host(Engine::Cpp, Source::Heap)),
        _ => None,
    }
}
