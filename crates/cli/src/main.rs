//! `lowtide`: the program people type.
//!
//! It does not link LibTorch, so help and errors come at once, for every command. Those that need a model are carried out by
//! `lowtide-engine`, by which this process replaces itself: signals, exit codes and the terminal behave as one program.

#![expect(clippy::disallowed_methods, reason = "a program is what prints")]

mod completions;
mod data;
mod doctor;
mod engine;
mod eval;
mod explain;
mod generate;
mod manual;
mod output;
mod pack;
mod ranks;
mod replay;
mod report;
mod run;
mod section;
mod stop_flag;
mod suggestion;
mod top;
mod train;
mod watch;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use lowtide_args::{Command, Lowtide};
use lowtide_core::parse_printable;
use lowtide_keep::survive_file_size_limit;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(output::report_panic));
    // Where it cannot be had, a file that grows too large ends the program, as it does others.
    let _ = survive_file_size_limit();
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    let typed = match parse_printable(env::args_os(), Lowtide::try_parse_from) {
        Ok(typed) => typed,
        Err(refusal) => return refused(&refusal, &words),
    };
    // Nothing stands before a command.
    let after = words.get(1..).unwrap_or_default();
    match typed.command {
        Command::Train(args) => train::run(&args, after),
        Command::Eval(args) => eval::run(&args, after),
        Command::Generate(args) => generate::run(&args),
        Command::Data(args) => data::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Run(args) => run::run(*args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Manual(args) => manual::run(&args),
    }
}

/// Says what is wrong with what was typed, or prints the help that was asked for.
fn refused(refusal: &clap::Error, words: &[OsString]) -> ExitCode {
    match suggestion::of(words).filter(|_| refusal.use_stderr()) {
        Some(failure) => output::report(Err(failure)),
        None => refusal.exit(),
    }
}
