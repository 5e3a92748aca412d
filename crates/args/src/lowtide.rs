//! All commands.

use clap::{Parser, Subcommand};

use crate::styles::STYLES;
use crate::{
    CompletionsArgs, DataArgs, DoctorArgs, EvalArgs, ExplainArgs, GenerateArgs, ManualArgs, PackArgs, ReplayArgs,
    ReportArgs, RunArgs, TopArgs, TrainArgs, WatchArgs,
};

/// Explains out-of-memory errors, keeps training alive through them, and trains inside a memory limit.
///
/// A run died with "CUDA out of memory"? `lowtide explain train.log` says why and what to change, and `lowtide run -- python
/// train.py` restarts it with a smaller micro-batch whenever it happens again. `lowtide train` is for models of Lowtide's own.
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
    Explain(ExplainArgs),
    Run(Box<RunArgs>),
    Replay(ReplayArgs),
    Doctor(DoctorArgs),
    Watch(WatchArgs),
    Top(TopArgs),
    Report(ReportArgs),
    Train(Box<TrainArgs>),
    Eval(EvalArgs),
    Data(DataArgs),
    Generate(GenerateArgs),
    Pack(PackArgs),
    Completions(CompletionsArgs),
    #[command(name = "man", hide = true)]
    Manual(ManualArgs),
}
