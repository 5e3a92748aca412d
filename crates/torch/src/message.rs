//! What the engine says when it fails, read into an error: the one way its answers become Rust values.

use std::ffi::{CStr, c_char};

use lowtide_oom::Oom;

use crate::error::{Result, TorchError};
use crate::ffi::{self, Status};
use crate::host;

impl Status {
    /// The answer as a Rust value; the message is freed.
    pub(crate) fn check(self) -> Result<()> {
        if self.kind == ffi::OK {
            return Ok(());
        }
        if self.message.is_null() {
            return Err(TorchError::Engine("the engine failed, and there was no memory left for its words".to_owned()));
        }
        // SAFETY: the shim hands out a NUL-terminated string from malloc with every status that is not OK.
        Err(error_of(&unsafe { taken(self.message) }))
    }
}

/// A text of the shim's, which is freed.
///
/// # Safety
///
/// `text` is a NUL-terminated string that the shim allocated with malloc and gave away.
pub(crate) unsafe fn taken(text: *mut c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        ffi::lt_text_free(text);
        owned
    }
}

/// Reads an engine message, which may end with a C++ stack.
///
/// The text decides, even where the engine typed the error: a corrupted size ("more than 1EB") has its out-of-memory type
/// and is something else.
pub(crate) fn error_of(text: &str) -> TorchError {
    let message = without_stack(text);
    if let Some(panic) = message.strip_prefix(PANIC_PREFIX) {
        return TorchError::Panic(panic.to_owned());
    }
    match lowtide_oom::read(message) {
        Some(oom) => TorchError::Oom { oom: Box::new(with_exact_numbers(oom, message)), message: message.to_owned() },
        None => TorchError::Engine(message.to_owned()),
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
