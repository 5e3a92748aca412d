//! What `lowtide eval` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lowtide_core::{CheckpointChoice, LineSpec};

use crate::engine::EngineArgs;

/// Evaluate a checkpoint of a run by itself.
///
/// Takes the run's own settings and the weights of a checkpoint, and nothing else of training: no gradients, no moments.
/// The run may be training meanwhile; its folder is only read. For the folder of a series every run is evaluated.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide eval runs/gpt-tiny-1                                  the newest checkpoint
  lowtide eval runs/gpt-tiny-1 --checkpoint best --set eval.batches=100
  lowtide eval runs/deblur-1 --set eval.crop=null --set eval.tile=auto --line 6GiB
                                                                whole frames, in tiles that fit
  lowtide eval runs/deblur-1 --json                             figures for a program

Exit codes:
  0    evaluated
  1    anything not named here
  2    bad input
  3    it does not fit under the line
  130  interrupted")]
pub struct EvalArgs {
    /// The folder of a run, or of a series of runs.
    #[arg(value_name = "RUN_DIR", value_hint = ValueHint::DirPath)]
    pub run: PathBuf,

    /// The checkpoint: newest, best (the lowest loss of those that were evaluated), or the number of a step.
    #[arg(long, value_name = "WHICH", default_value = "newest")]
    pub checkpoint: CheckpointChoice,

    /// Set one configuration key, such as eval.batches=20. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// The memory limit (the line) of the device: a size (3.5GiB), a percentage of the device (90%), or none.
    #[arg(long, value_name = "SIZE")]
    pub line: Option<LineSpec>,

    /// The memory limit (the line) of the host: bounds the resident memory of the process. A size, a percentage, or none.
    #[arg(long, value_name = "SIZE")]
    pub host_line: Option<LineSpec>,

    /// How the engine runs.
    #[command(flatten)]
    pub engine: EngineArgs,
}
