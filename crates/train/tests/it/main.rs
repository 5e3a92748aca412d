//! Whole runs of a small model: what fails in them, what they leave, how they go on.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod batch_norm;
mod checkpoints;
mod cleaning;
mod early_stop;
mod evaluation;
mod injected;
mod kit;
mod measures;
mod tiles;
mod transaction;
