//! Runs and machines as they are followed, told, drawn and served.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod a_day;
mod crowd;
mod kit;
mod metrics;
mod run;
mod samples;
mod server;
