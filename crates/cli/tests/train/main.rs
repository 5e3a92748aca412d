//! `lowtide train` as a person meets it: what it prints, what it writes, how it ends.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bad_input;
mod curves;
mod disk;
mod eval;
mod feed;
mod frames;
mod inject;
mod kill;
mod kit;
mod line;
mod moments;
mod readers;
mod resume;
mod run;
mod series;
mod signals;
mod watch;
