//! What `lowtide top` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Watch a run in the terminal: memory against its limit, retries, the loss.
///
/// And what holds memory of the machine and its cards. Keys: q or Ctrl-C end it, the arrows choose another run of a series. The run itself is not disturbed. With --pid it
/// shows any process.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide top                             the newest run in runs/
  lowtide top runs/mine
  lowtide top --pid 4242                  any process: its memory, its children's, its cards

Exit codes:
  0    ended by q or Ctrl-C
  2    bad input: no run or no such process is there, or this is no terminal")]
pub struct TopArgs {
    /// Folders of runs or of series [default: the newest in runs/].
    #[arg(value_name = "RUN_DIR", value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,

    /// A process to watch instead, with those below it.
    #[arg(long, value_name = "N", conflicts_with = "folders")]
    pub pid: Option<u32>,
}
