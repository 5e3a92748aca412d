//! The workloads that come with Lowtide: their numbers, their data, and that they learn.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod deblur;
mod kit;
mod metrics;
mod qca;
mod scoring;
mod sweep;
