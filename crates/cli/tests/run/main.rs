//! `lowtide run` with real commands.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod control_group;
mod kit;
mod output;
mod refusals;
mod rungs;
mod signals;
mod terminal;
mod torch;
