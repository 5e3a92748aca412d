//! All commands.

use clap::{Parser, Subcommand};

use crate::styles::STYLES;
use crate::{
    CompletionsArgs, DataArgs, DoctorArgs, EvalArgs, ExplainArgs, GenerateArgs, ManualArgs, PackArgs, ReportArgs,
    RunArgs, TopArgs, TrainArgs, WatchArgs,
};

/// Trains neural networks inside a memory line.
///
/// For runs that died with "CUDA out of memory": draw a line, and the run stays under it. When memory runs out the same
/// batch is run again in smaller pieces, the effective batch stays, and nothing is lost.
#[derive(Debug, Parser)]
#[command(name = "lowtide", version, arg_required_else_help = true, styles = STYLES)]
pub struct Lowtide {
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// A command with its arguments.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "each is described where its arguments are, and the help repeats what stands there")]
pub enum Command {
    Train(Box<TrainArgs>),
    Eval(EvalArgs),
    Data(DataArgs),
    Generate(GenerateArgs),
    Pack(PackArgs),
    Watch(WatchArgs),
    Top(TopArgs),
    Report(ReportArgs),
    Explain(ExplainArgs),
    Run(Box<RunArgs>),
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
    #[command(name = "man", hide = true)]
    Manual(ManualArgs),
}
