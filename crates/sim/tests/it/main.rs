//! The allocator against recordings of real cards.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod golden;
mod hostile;
mod sizes;
mod traces;
