//! The families of messages, one file for each kind.

mod caching_allocator;
mod cluster;
mod cpu_allocator;
mod cuda;
mod errno;
mod exit;
mod frameworks;
mod ggml;
mod heaps;
mod kernel;
mod metal;
mod order;
mod plain;
mod programs;
mod schedulers;
mod serving;
mod statuses;
mod tensorflow;
mod worker;
mod xla;

pub(crate) use errno::PAGE_FILES;
pub(crate) use order::read;
