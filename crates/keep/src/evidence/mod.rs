//! Signs that memory of the machine ran out.

pub(crate) mod kernel_log;
pub(crate) mod memory;
