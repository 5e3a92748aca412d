//! Words and decisions from outside: what is printed and read, and what the guard answers.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod batch;
mod bytes;
mod event;
mod guard;
mod guard_any_signals;
mod guard_on_a_device;
mod kit;
mod reference;
