//! Samples, shards and data sets as a run reads them: their order, their memory, and what damage does.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod any_bytes;
mod batch_file;
mod budget;
mod data_set;
mod feed;
mod flips;
mod independent_cache;
mod index;
mod kit;
#[cfg(target_os = "linux")]
mod memory;
mod order;
mod pack;
mod permutation;
mod policy;
mod scores;
mod shard;
