//! What `lowtide explain` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Say from a log why memory ran out, which tensor it was, and what to change.
///
/// Finds every out-of-memory event of a log of any size and any engine. Of the last one it prints what happened, why, what
/// to do now and a patch for the configuration; with --all everything that is known, of every event.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide explain train.log
  lowtide explain                         the newest run of `lowtide run`: the last time that memory ran out
  python train.py 2>&1 | tee train.log; lowtide explain train.log --config config/train_gpt2.py
  lowtide explain train.log --config run.yaml --config config.json --write
  lowtide explain train.log --command 'python train.py config/train_gpt2.py --batch_size=16'
  lowtide explain train.log --html why.html
  kubectl logs mine | lowtide explain - --json
  lowtide explain --snapshot snapshot.pickle

Exit codes:
  0    memory ran out, and here is why
  1    no out-of-memory error in the log
  2    bad input: a file that cannot be read, or a patch that cannot be written")]
pub struct ExplainArgs {
    /// The log, `-` for standard input, or a folder of `lowtide run` [default: the newest of those in runs/].
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,

    /// Explain a memory snapshot of PyTorch instead of a log: who held memory when it ran out, and whether another allocator setting alone would
    /// have saved the run.
    #[arg(long, value_name = "PICKLE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["log", "config", "command", "write", "all", "html"])]
    pub snapshot: Option<PathBuf>,

    /// A configuration of the run: nanoGPT's Python, YAML, JSON (also Hugging Face's config.json), or a shell script.
    /// May be given several times; a later one counts before an earlier one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Vec<PathBuf>,

    /// The command line of the run. The script and the configuration files it names are read too, where they are.
    #[arg(long, value_name = "COMMAND")]
    pub command: Option<String>,

    /// Write the patch into the configuration. Without it, it is only shown.
    #[arg(long)]
    pub write: bool,

    /// Write the patch even where the patch of this log was written into the configuration before.
    #[arg(long, requires = "write")]
    pub force: bool,

    /// Show all that is known: the arithmetic, every piece of advice, every event.
    #[arg(long)]
    pub all: bool,

    /// Write the last event as a page that opens from disk, with a bar of who holds what; one that is there is replaced.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Print the verdicts as a JSON list, the last event first.
    #[arg(long)]
    pub json: bool,
}
