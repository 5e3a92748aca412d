//! What a command prints: passed on, copied, and read.

pub(crate) mod cause;
pub(crate) mod log;
pub(crate) mod passing;
pub(crate) mod tail;
pub(crate) mod told_batch;
