//! A program that trains a model of its own, with the whole command line of Lowtide.
//!
//! `spirals.rs` is the model and its data; this file is all that a program needs beside it.

mod spirals;

use std::process::ExitCode;

use lowtide_program::Program;
use lowtide_train::Catalogue;

fn main() -> ExitCode {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    Program { name, version, catalogue: Catalogue(&[spirals::RECIPE]) }.run()
}
