//! What is made from the arguments: that it is current, and that none of it is left out.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod declaration;
mod exit_codes;
mod reference;
