//! Signs that memory of the machine ran out.

pub(crate) mod footprint;
pub(crate) mod kill_counter;
