//! What LibTorch does under Lowtide's allocator, errors, recompute and numbers.
//!
//! One binary, and tests that share it: random state, allocator and settings are the process's, so each test takes its
//! turn ([`kit::alone`]). What needs a GPU is in [`gpu`].

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod border;
mod every_allocation;
mod fused;
mod gpu;
mod host;
mod kit;
mod loss;
mod model;
mod precision;
mod ranks;
mod recompute;
