//! What a command prints: passed on, copied, and read.

pub(crate) mod epilogue;
pub(crate) mod relay;
pub(crate) mod tail;
pub(crate) mod transcript;
