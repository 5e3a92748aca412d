//! One start of a command, from its first process to its last.

pub(crate) mod attendant;
pub(crate) mod child;
pub(crate) mod incident;
pub(crate) mod input;
pub(crate) mod signal_mask;
pub(crate) mod supervisor;
pub(crate) mod terminal;
