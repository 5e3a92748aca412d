//! What `lowtide eval` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lowtide_core::CheckpointChoice;

use crate::engine::EngineArgs;
use crate::settings::SettingArgs;

/// Evaluate a checkpoint of a run by itself.
///
/// Takes the run's own settings and the weights of a checkpoint, and nothing else of training: no gradients, no moments.
/// The run may be training meanwhile; its folder is only read. For the folder of a series every run is evaluated.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide eval runs/gpt-tiny-1                                  the newest checkpoint
  lowtide eval runs/gpt-tiny-1 --checkpoint best --set eval.batches=100
  lowtide eval runs/deblur-1 --set eval.crop=null --set eval.tile=auto --limit 6GiB
                                                                whole frames, in tiles that fit
  lowtide eval runs/deblur-1 --json                             figures for a program

Exit codes:
  0    evaluated
  1    anything not named here
  2    bad input
  3    it does not fit under the memory limit
  130  interrupted")]
pub struct EvalArgs {
    /// The folder of a run, or of a series of runs.
    #[arg(value_name = "RUN_DIR", value_hint = ValueHint::DirPath)]
    pub run: PathBuf,

    /// The checkpoint: newest, best (the lowest loss of those that were evaluated), or the number of a step.
    #[arg(long, value_name = "WHICH", default_value = "newest")]
    pub checkpoint: CheckpointChoice,

    /// What goes over the configuration.
    #[command(flatten)]
    pub settings: SettingArgs,

    /// How the engine runs.
    #[command(flatten)]
    pub engine: EngineArgs,
}
