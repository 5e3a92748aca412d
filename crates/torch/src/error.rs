//! Errors of the engine as values.

use lowtide_oom::Oom;

use crate::host;

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, TorchError>;

/// What went wrong in the engine; a variant for each decision a caller makes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TorchError {
    /// Memory ran out: the step can be tried again with less.
    #[error("{message}")]
    Oom {
        /// The facts read from the message, exact where the CPU allocator refused.
        oom: Box<Oom>,
        /// The engine's own words.
        message: String,
    },
    /// The engine refused or failed for another reason: trying again will not help.
    #[error("{0}")]
    Engine(String),
    /// A recomputed segment panicked in its second run; the panic itself cannot cross the engine.
    #[error("a recomputed segment panicked in backward: {0}")]
    Panic(String),
    /// Data that was to be computed with is wrong: the person who brought it can mend it.
    #[error("{0}")]
    Input(String),
    /// There is no such device, or no way to use it.
    #[error("{0}")]
    Device(String),
}

impl TorchError {
    /// Whether memory ran out.
    #[must_use]
    pub fn is_oom(&self) -> bool {
        matches!(self, TorchError::Oom { .. })
    }

    /// Reads an engine message, which may end with a C++ stack.
    ///
    /// The text decides, even where the engine typed the error: a corrupted size ("more than 1EB") has its
    /// out-of-memory type and is something else.
    pub(crate) fn from_text(text: &str) -> TorchError {
        let message = without_stack(text);
        if let Some(panic) = message.strip_prefix(PANIC_PREFIX) {
            return TorchError::Panic(panic.to_owned());
        }
        match lowtide_oom::read(message) {
            Some(oom) => {
                TorchError::Oom { oom: Box::new(with_exact_numbers(oom, message)), message: message.to_owned() }
            }
            None => TorchError::Engine(message.to_owned()),
        }
    }
}

/// Marks a Rust panic on its way through C++.
pub(crate) const PANIC_PREFIX: &str = "lowtide: panic in a recomputed segment: ";

/// LibTorch's `what()` appends where the exception was raised.
fn without_stack(text: &str) -> &str {
    let end = text.find("\nException raised from").unwrap_or(text.len());
    text[..end].trim_end()
}

fn with_exact_numbers(mut oom: Oom, message: &str) -> Oom {
    if !message.starts_with("CPU out of memory. Tried to allocate") {
        return oom;
    }
    if let Some(refusal) = host::last_refusal() {
        oom.requested = Some(refusal.requested);
        oom.allocated = Some(refusal.allocated);
        oom.limit = refusal.line;
    }
    oom
}
