//! `lowtide eval`: the engine, once what was typed is known to be right.

use std::ffi::OsString;
use std::process::ExitCode;

use lowtide_args::EvalArgs;

use crate::engine::become_engine;
use crate::output::report;

/// Replaces this process by the engine, which gets the words as they were typed.
pub(crate) fn run(args: &EvalArgs, words: &[OsString]) -> ExitCode {
    match args.overrides() {
        Ok(_) => become_engine("eval", words),
        Err(error) => report(Err(error.into())),
    }
}
