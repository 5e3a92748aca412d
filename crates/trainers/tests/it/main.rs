//! What the answers come to for those who ask.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agreement;
