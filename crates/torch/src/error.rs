//! Errors of the engine as values.
//!
//! Errors carry no C++ stack. Finding the names for it takes a tenth of a second for each error.

use lowtide_oom::Oom;

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
}
