//! What the engine is told: the words that were typed after `lowtide`, which the front has parsed before.

use clap::{Parser, Subcommand};
use lowtide_args::{EvalArgs, STYLES, TrainArgs};

/// Trains neural networks inside a memory line.
#[derive(Debug, Parser)]
#[command(name = "lowtide", version, bin_name = "lowtide", arg_required_else_help = true, styles = STYLES)]
pub(crate) struct Engine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(Box<TrainArgs>),
    Eval(EvalArgs),
}
