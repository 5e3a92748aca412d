//! `lowtide`: the program people type.
//!
//! It does not link LibTorch, so help and errors come at once. Commands that need a workload are carried out by `lowtide-engine`,
//! by which this process replaces itself: signals, exit codes and the terminal behave as one program.

#![expect(clippy::disallowed_methods, reason = "a program is what prints")]

mod data;
mod doctor;
mod engine;
mod explain;
mod output;
mod pack;
mod report;
mod run;
mod top;
mod train;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use lowtide_core::parse_printable;
use lowtide_keep::survive_file_size_limit;

use crate::data::DataArgs;
use crate::doctor::DoctorArgs;
use crate::explain::ExplainArgs;
use crate::pack::PackArgs;
use crate::report::ReportArgs;
use crate::run::RunArgs;
use crate::top::TopArgs;
use crate::watch::WatchArgs;

/// Trains neural networks inside a memory line.
///
/// For runs that died with "CUDA out of memory": draw a line, and the run stays under it. When memory runs out the same
/// batch is run again in smaller pieces, the effective batch stays, and nothing is lost.
#[derive(Debug, Parser)]
#[command(name = "lowtide", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Lowtide {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model inside a memory line.
    #[command(disable_help_flag = true)]
    Train {
        /// What `lowtide train --help` lists.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Evaluate a checkpoint of a run by itself.
    #[command(disable_help_flag = true)]
    Eval {
        /// What `lowtide eval --help` lists.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    Data(DataArgs),
    /// Write made-up training data of any size.
    #[command(disable_help_flag = true)]
    Generate {
        /// What `lowtide generate --help` lists.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    Pack(PackArgs),
    Watch(WatchArgs),
    Top(TopArgs),
    Report(ReportArgs),
    Explain(ExplainArgs),
    Run(RunArgs),
    Doctor(DoctorArgs),
    /// Explain lowtide, or one of its commands.
    Help {
        /// The command to explain.
        command: Option<HelpTopic>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HelpTopic {
    Train,
    Eval,
    Data,
    Generate,
    Pack,
    Watch,
    Top,
    Report,
    Explain,
    Run,
    Doctor,
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(output::report_panic));
    // Where it cannot be had, a file that grows too large ends the program, as it does others.
    let _ = survive_file_size_limit();
    let typed = match parse_printable(std::env::args_os(), Lowtide::try_parse_from) {
        Ok(typed) => typed,
        Err(refusal) => return refused(&refusal),
    };
    match typed.command {
        Command::Train { args } => train::run(&args),
        Command::Eval { args } => engine::become_engine("eval", &args),
        Command::Generate { args } => engine::become_engine("generate", &args),
        Command::Data(args) => data::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Run(args) => run::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Help { command } => describe(command),
    }
}

/// Says what is wrong with what was typed, or prints the help that was asked for.
fn refused(refusal: &clap::Error) -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let meant = words.split_first().filter(|(first, _)| refusal.use_stderr() && *first == "run");
    if let Some(failure) = meant.and_then(|(_, words)| run::without_dashes(words)) {
        return output::report(Err(failure));
    }
    refusal.exit()
}

/// Prints the help of a command, or of the whole program. The engine knows its own.
fn describe(topic: Option<HelpTopic>) -> ExitCode {
    let name = topic.and_then(|topic| topic.to_possible_value());
    let name = name.as_ref().map(|value| value.get_name());
    if let (Some(name), Some(HelpTopic::Train | HelpTopic::Eval | HelpTopic::Generate)) = (name, topic) {
        return engine::become_engine(name, &["--help".into()]);
    }
    let mut command = Lowtide::command();
    // Else a command would not know that it is one of lowtide's.
    command.build();
    let described = match name {
        Some(name) => command.find_subcommand_mut(name).expect("the command is one of ours"),
        None => &mut command,
    };
    match described.print_long_help() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
