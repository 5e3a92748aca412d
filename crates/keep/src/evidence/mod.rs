//! Signs that memory of the machine ran out.

pub(crate) mod footprint;
pub(crate) mod kernel_log;
pub(crate) mod kill_counter;
