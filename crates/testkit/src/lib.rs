//! What the tests of several crates need, written once. No program and no library depends on it.
//!
//! It knows `core` and nothing above it, so that the tests of any crate can use it, and it links no LibTorch. What the
//! tests of one crate need alone is in their own `kit.rs`.
//!
//! **Where to start reading.** [`Sandbox`] is a folder with a program to run in it, [`FakeRun`] the events of a run that
//! a test writes; [`Damage`] changes bytes; [`alone`] gives each test its turn.

#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod curves;
mod damage;
mod hostile;
mod http;
mod run;
mod sandbox;
mod turn;
mod wait;

pub use curves::read_back;
pub use damage::{Damage, damages};
pub use hostile::{HOSTILE, check_plain};
pub use http::get;
pub use run::FakeRun;
pub use sandbox::{Printout, Sandbox};
pub use turn::alone;
pub use wait::wait_until;
