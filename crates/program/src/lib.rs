//! A program that trains: the whole command line, for whatever workloads it is given.
//!
//! **What it does.** [`Program::run`] is the `main` of `lowtide-engine`, and of a program of somebody else's that brings a model:
//! it parses what was typed, trains, evaluates and resumes, prints what happens, and ends with an exit code.
//!
//! **What it leaves out.** It knows no model: they come in a [`Catalogue`](lowtide_train::Catalogue). The page that `--watch` shows is the front's, `lowtide`,
//! which it hands over to.
//!
//! **Where to start reading.** `program.rs`, then `train.rs` and `eval.rs`, which carry out what was typed. `session.rs` is the
//! started engine with one run on it, `engine_choice.rs` is how it is to run, `series.rs` is several of them, `launch/` and `ranks.rs` are one of them on several processes,
//! `output/console.rs` is what a person sees meanwhile, `curves.rs` is what TensorBoard sees.

#![expect(clippy::disallowed_methods, reason = "a program is what prints")]

mod curves;
mod engine_choice;
mod eval;
mod exit;
mod front;
mod launch;
mod memory_recording;
mod output;
mod program;
mod ranks;
mod series;
mod session;
mod signals;
mod train;

pub use program::Program;
