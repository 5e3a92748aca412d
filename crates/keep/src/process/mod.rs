//! One start of a command, from its first process to its last.

pub(crate) mod attend;
pub(crate) mod supervise;
pub(crate) mod terminal;
