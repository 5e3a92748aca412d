//! The commands of `lowtide` that need no LibTorch, as people meet them. Those that need it are tested beside the engine.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod data;
mod doctor;
mod explain;
mod explained_runs;
mod help;
mod hostile_names;
mod kit;
mod run;
mod watching;
