//! What `lowtide train` takes.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use lowtide_core::{CheckpointChoice, Injection};

use crate::engine::EngineArgs;
use crate::settings::SettingArgs;

/// Train a model inside a memory limit.
///
/// Reads a configuration, trains to its end and writes everything about the run into a folder. When memory runs out the
/// same batch is run again in smaller pieces: no sample is lost and the effective batch stays as configured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide train configs/gpt-tiny.yaml                     train the small example
  lowtide train configs/gpt-tiny.yaml --limit 64MiB       ... inside 64 MiB of tensor memory
  lowtide train configs/gpt-tiny.yaml --set train.steps=50 --out runs/short
  lowtide train --resume --out runs/short                 resume where it stopped
  lowtide train scoring --preprocessed-dir batches --host-limit 2GiB --epochs 20
                                                          three models on files larger than memory
  lowtide train configs/gpt-tiny.yaml --ranks 2           two processes, half of each step on each
  torchrun --nproc-per-node=8 --no-python lowtide train configs/gpt-tiny.yaml --out runs/eight

Signals:
  SIGINT (Ctrl-C), SIGTERM   finish the step, save and end; a second one ends at once
  SIGHUP                     finish the step, save and end; ignored under nohup
  SIGUSR1                    finish the step, save and go on (Slurm: --signal=USR1@60)

Exit codes:
  0    finished
  1    anything not named here
  2    bad input, a full disk or a file size limit; nothing is left half-written
  3    nothing fits under the memory limit; the state is saved
  130  interrupted; the state is saved")]
pub struct TrainArgs {
    /// The configuration, a YAML file, or the name of a workload (deblur, gpt, qca, scoring) for its own small one.
    /// May be left out with --resume: the run's own is used.
    #[arg(value_name = "CONFIG", value_hint = ValueHint::FilePath, required_unless_present = "resume")]
    pub config: Option<PathBuf>,

    /// What goes over the configuration.
    #[command(flatten)]
    pub settings: SettingArgs,

    /// The run folder itself. Default: a new folder under runs/ named after the configuration.
    #[arg(long, visible_alias = "output-dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// Resume from the newest checkpoint (or --checkpoint) of the run in --out (or of the newest run of this configuration).
    #[arg(long)]
    pub resume: bool,

    /// With --resume: the checkpoint to resume from: newest, best, or the number of a step.
    ///
    /// Steps after it are made again. Newer checkpoints stay under another name (STEP.aside).
    #[arg(long, value_name = "WHICH", requires = "resume", default_value = "newest", hide_default_value = true)]
    pub checkpoint: CheckpointChoice,

    /// Compute each step as another run did: the same micro-batches, loss chunks, recompute level and precision.
    ///
    /// The two then end with the same weights, bit for bit, on the same device and with as many threads. When memory runs
    /// out, the schedule is left where cleaning is not enough.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub schedule_from: Option<PathBuf>,

    /// Let memory run out on purpose, such as step=3,phase=backward. May be given several times.
    ///
    /// Phases are forward, backward, optimizer, eval, save and load; the first one at or after that step fails. times=N fails N
    /// tries in a row, alloc=N fails the N-th allocation of the phase (on a GPU always the first), rank=N fails on that rank alone.
    #[arg(long, value_name = "step=N,phase=PHASE")]
    pub inject_oom: Vec<Injection>,

    /// Write every request of the run's allocator to this file, to be replayed; of several ranks those of the first.
    ///
    /// For a few steps: it takes memory for each allocation, which the limit does not count.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record_memory: Option<PathBuf>,

    /// Say where the time of so many steps went, and write them as a trace (trace.json in the folder of the run).
    ///
    /// The first three steps are left out. Steps that are looked at take longer.
    #[arg(long, value_name = "STEPS")]
    pub profile: Option<NonZeroU32>,

    /// Passes over the training data (train.epochs).
    #[arg(long, value_name = "N")]
    pub epochs: Option<u64>,

    /// Samples in a step (train.batch).
    #[arg(long, value_name = "N")]
    pub batch_size: Option<u32>,

    /// Show the run in a browser while it goes, at this port or the first free one from 7823 on.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, value_parser = port)]
    pub watch: Option<Option<u16>>,

    /// Train on so many processes of this machine, each on its part of every step (torchrun and srun start them on several).
    #[arg(long, value_name = "N", value_parser = ranks)]
    pub ranks: Option<NonZeroU32>,

    /// How the engine runs.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// What only the workload scoring takes.
    #[command(flatten)]
    pub scoring: ScoringFlags,
}

/// The most processes that are started on a machine: far more than cards or cores are worth it.
const MOST_RANKS: u32 = 1024;

fn ranks(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<NonZeroU32>().ok().filter(|number| number.get() <= MOST_RANKS);
    number.ok_or_else(|| format!("expected a number from 1 to {MOST_RANKS}"))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "this is no port: write --watch=8000, or --watch alone for the first free one".to_owned())
}

/// What only the workload scoring takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the workload scoring")]
pub struct ScoringFlags {
    /// A folder of batch files or of shards, read as they are needed (data.folder).
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "data_pattern")]
    pub preprocessed_dir: Option<String>,

    /// Files by a pattern, such as 'traces/*.pkl*', all read at the start (data.pattern, data.load=whole).
    #[arg(long, value_name = "PATTERN")]
    pub data_pattern: Option<String>,

    /// A table (CSV) with the score of each id (data.scores).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub scores_file: Option<String>,

    /// Batch files or shards that are kept in memory (data.cache_batches). Default: what the memory limit of the host allows.
    #[arg(long, value_name = "N")]
    pub max_cache_batches: Option<u32>,

    /// Train the LSTM over the sequence alone (model.run).
    #[arg(long, overrides_with = "no_run_lstm")]
    pub run_lstm: bool,

    /// Leave it out.
    #[arg(long)]
    pub no_run_lstm: bool,

    /// Train the LSTM with a graph network.
    #[arg(long, overrides_with = "no_run_gnn_det")]
    pub run_gnn_det: bool,

    /// Leave it out.
    #[arg(long)]
    pub no_run_gnn_det: bool,

    /// Train the LSTM with a variational graph encoder.
    #[arg(long, overrides_with = "no_run_gvae")]
    pub run_gvae: bool,

    /// Leave it out.
    #[arg(long)]
    pub no_run_gvae: bool,
}
