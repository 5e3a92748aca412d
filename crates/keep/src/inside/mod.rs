//! What is put into the Pythons of a command: the door by which it comes in, and the parts.

pub(crate) mod allocator;
pub(crate) mod door;
pub(crate) mod fatal_report;
pub(crate) mod host_reserve;
pub(crate) mod memory_watch;
pub(crate) mod request;
pub(crate) mod trainer_guard;
