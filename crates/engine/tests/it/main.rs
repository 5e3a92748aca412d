//! `lowtide train` and `eval` as people meet them: what they print, what they write, how they end.
//!
//! The front `lowtide` is started, which turns into the engine, so both programs must have been built.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bad_input;
mod curves;
mod disk;
mod eval;
mod feed;
mod folders;
mod frames;
mod hostile_names;
mod inject;
mod kill;
mod kit;
mod line;
mod moments;
mod numerics;
mod profile;
mod ranks;
mod readers;
mod recording;
mod resume;
mod run;
mod series;
mod signals;
mod watch;
