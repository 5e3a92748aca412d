//! The commands on data files: what people see of them, and what they are told of bad ones.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod files;
mod kit;
mod pack;
mod shards;
