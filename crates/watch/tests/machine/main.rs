//! Samples of the machine as they are told, drawn and served.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod a_day;
mod kit;
mod metrics;
mod samples;
