//! `lowtide`: the program people type.
//!
//! It does not link LibTorch, so help and errors come at once. Commands that need a workload are carried out by `lowtide-engine`,
//! by which this process replaces itself: signals, exit codes and the terminal behave as one program.

mod data;
mod engine;
mod explain;
mod output;
mod pack;
mod page_of_run;
mod report;
mod run_of;
mod sampling;
mod top;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::data::DataArgs;
use crate::explain::ExplainArgs;
use crate::pack::PackArgs;
use crate::report::ReportArgs;
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
    /// Explain lowtide, or one of its commands.
    Help {
        /// The command to explain.
        command: Option<Explained>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Explained {
    Train,
    Eval,
    Data,
    Generate,
    Pack,
    Watch,
    Top,
    Report,
    Explain,
}

fn main() -> ExitCode {
    match Lowtide::parse().command {
        Command::Train { args } => engine::train(&args),
        Command::Help { command: Some(Explained::Train) } => engine::become_engine("train", &["--help".into()]),
        Command::Eval { args } => engine::become_engine("eval", &args),
        Command::Help { command: Some(Explained::Eval) } => engine::become_engine("eval", &["--help".into()]),
        Command::Generate { args } => engine::become_engine("generate", &args),
        Command::Help { command: Some(Explained::Generate) } => engine::become_engine("generate", &["--help".into()]),
        Command::Data(args) => data::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Help { command: Some(Explained::Data) } => describe(Some("data")),
        Command::Help { command: Some(Explained::Pack) } => describe(Some("pack")),
        Command::Help { command: Some(Explained::Watch) } => describe(Some("watch")),
        Command::Help { command: Some(Explained::Top) } => describe(Some("top")),
        Command::Help { command: Some(Explained::Report) } => describe(Some("report")),
        Command::Help { command: Some(Explained::Explain) } => describe(Some("explain")),
        Command::Help { command: None } => describe(None),
    }
}

/// Prints the help of a command, or of the whole program.
fn describe(name: Option<&str>) -> ExitCode {
    let mut command = Lowtide::command();
    // Else a command would not know that it is one of lowtide's.
    command.build();
    let explained = match name {
        Some(name) => command.find_subcommand_mut(name).expect("the command is one of ours"),
        None => &mut command,
    };
    match explained.print_long_help() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
