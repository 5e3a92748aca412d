//! What a command prints: passed on, copied, and read.

pub(crate) mod cause;
pub(crate) mod relay;
pub(crate) mod tail;
pub(crate) mod told_batch;
pub(crate) mod transcript;
