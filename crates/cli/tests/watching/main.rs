//! `lowtide watch`, `lowtide top` and `lowtide report`: runs as people see them.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod browser;
mod kit;
mod machine;
mod page;
mod report;
mod top;
mod watch;
