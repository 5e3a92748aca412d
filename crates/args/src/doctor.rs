//! What `lowtide doctor` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Say what this machine has for training, what looks wrong, and how to fix it.
///
/// Looks at GPUs and their driver, who holds their memory, PyTorch where it is installed (without starting it), the
/// allocator's environment, RAM, swap, the control group's limit, /dev/shm and the limit of open files. Changes
/// nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide doctor
  lowtide doctor --json         the same for a program

Exit codes:
  0    nothing looks wrong
  1    something does; each has its fix
  2    bad input to lowtide itself")]
pub struct DoctorArgs {
    /// Print everything as JSON.
    #[arg(long)]
    pub json: bool,

    /// Where the machine's /proc, /sys and installations are; for tests.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/", hide = true)]
    pub root: PathBuf,
}
