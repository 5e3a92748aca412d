//! What was typed.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use lowtide_core::LineSpec;
use lowtide_torch::DeviceChoice;
use lowtide_train::{CheckpointChoice, Injection};

use crate::generate::GenerateArgs;

/// Trains neural networks inside a memory line.
#[derive(Debug, Parser)]
#[command(name = "lowtide", version, bin_name = "lowtide", arg_required_else_help = true)]
pub(crate) struct Engine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(TrainArgs),
    Eval(EvalArgs),
    Generate(GenerateArgs),
}

/// Train a model inside a memory line.
///
/// Reads a configuration, trains to its end and writes everything about the run into a folder. When memory runs out the
/// same batch is run again in smaller pieces: no sample is lost and the effective batch stays as configured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide train configs/gpt-tiny.yaml                     train the small example
  lowtide train configs/gpt-tiny.yaml --line 64MiB        ... inside 64 MiB of tensor memory
  lowtide train configs/gpt-tiny.yaml --set train.steps=50 --out runs/short
  lowtide train --resume --out runs/short                 go on where it stopped
  lowtide train scoring --preprocessed-dir batches --host-line 2GiB --epochs 20
                                                          three models on files larger than memory

Signals:
  SIGINT (Ctrl-C), SIGTERM   finish the step, save and end; a second one ends at once
  SIGHUP                     finish the step, save and end; ignored under nohup
  SIGUSR1                    finish the step, save and go on (Slurm: --signal=USR1@60)

Exit codes:
  0    finished
  1    anything not named here
  2    bad input, a full disk or a file size limit; nothing is left half-written
  3    nothing fits under the line; the state is saved
  130  interrupted; the state is saved")]
pub(crate) struct TrainArgs {
    /// The configuration, a YAML file, or the name of a workload (deblur, gpt, qca, scoring) for its own small one.
    /// May be left out with --resume: the run's own is used.
    #[arg(value_name = "CONFIG", required_unless_present = "resume")]
    pub(crate) config: Option<PathBuf>,

    /// Set one configuration key, such as train.steps=50. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// The memory line of the device: a size (3.5GiB), a percentage of the device (90%), or none.
    ///
    /// On a GPU it is what the driver sees, everything included; on the CPU it is the memory of tensors.
    #[arg(long, value_name = "SIZE")]
    pub(crate) line: Option<LineSpec>,

    /// The memory line of the host: bounds the resident memory of the process. A size, a percentage, or none.
    #[arg(long, value_name = "SIZE")]
    pub(crate) host_line: Option<LineSpec>,

    /// The run folder itself. Default: a new folder under runs/ named after the configuration.
    #[arg(long, visible_alias = "output-dir", value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Go on from the newest checkpoint (or --checkpoint) of the run in --out (or of the newest run of this configuration).
    #[arg(long)]
    pub(crate) resume: bool,

    /// With --resume: the checkpoint to go on from: newest, best, or the number of a step.
    ///
    /// Steps after it are made again. Newer checkpoints stay under another name (STEP.aside).
    #[arg(long, value_name = "WHICH", requires = "resume", default_value = "newest", hide_default_value = true)]
    pub(crate) checkpoint: CheckpointChoice,

    /// Compute each step as another run did: the same micro-batches, loss chunks, recompute level and precision.
    ///
    /// The two then end with the same weights, bit for bit, on the same device and with as many threads. When memory runs
    /// out, the schedule is left where cleaning is not enough.
    #[arg(long, value_name = "DIR")]
    pub(crate) schedule_from: Option<PathBuf>,

    /// Let memory run out on purpose, such as step=3,phase=backward. May be given several times.
    ///
    /// Phases are forward, backward, optimizer, eval, save and load; the first one at or after that step fails. times=N fails N
    /// tries in a row, alloc=N fails the N-th allocation of the phase (on a GPU always the first).
    #[arg(long, value_name = "step=N,phase=PHASE")]
    pub(crate) inject_oom: Vec<Injection>,

    /// Passes over the training data (train.epochs).
    #[arg(long, value_name = "N")]
    pub(crate) epochs: Option<u64>,

    /// Samples in a step (train.batch).
    #[arg(long, value_name = "N")]
    pub(crate) batch_size: Option<u32>,

    /// Show the run in a browser while it goes, at this port or the first free one from 7823 on.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    pub(crate) watch: Option<Option<u16>>,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    #[command(flatten)]
    pub(crate) scoring: ScoringFlags,
}

/// How the engine runs, whatever it does.
#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Where to compute: auto, cpu, cuda or cuda:N. auto takes the first GPU, or the CPU where there is none.
    ///
    /// Default: auto; a resumed run stays where it was started.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,

    /// Fix what decides the bits: orders of adding, instruction sets (AVX2) and threads (1, or --threads).
    ///
    /// Runs then end with the same weights, bit for bit, whatever processors they may use. Slower, on a GPU too. A resumed
    /// run stays as it was started; --deterministic=false ends that.
    #[arg(
        long,
        value_name = "true|false",
        hide_possible_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) deterministic: Option<bool>,

    /// Threads that share an operation on the CPU. Default: as many as there are processors for this process.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<NonZeroU32>,

    /// Print what happens as lines of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The most threads that may be named: far beyond any machine, and few enough to be started.
const MOST_THREADS: u32 = 1024;

fn threads(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<NonZeroU32>().ok().filter(|number| number.get() <= MOST_THREADS);
    number.ok_or_else(|| format!("expected a number from 1 to {MOST_THREADS}"))
}

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
pub(crate) struct EvalArgs {
    /// The folder of a run, or of a series of runs.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,

    /// The checkpoint: newest, best (the lowest loss of those that were evaluated), or the number of a step.
    #[arg(long, value_name = "WHICH", default_value = "newest")]
    pub(crate) checkpoint: CheckpointChoice,

    /// Set one configuration key, such as eval.batches=20. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// The memory line of the device: a size (3.5GiB), a percentage of the device (90%), or none.
    #[arg(long, value_name = "SIZE")]
    pub(crate) line: Option<LineSpec>,

    /// The memory line of the host: bounds the resident memory of the process. A size, a percentage, or none.
    #[arg(long, value_name = "SIZE")]
    pub(crate) host_line: Option<LineSpec>,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// What only the workload scoring takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the workload scoring")]
pub(crate) struct ScoringFlags {
    /// A folder of batch files or of shards, read as they are needed (data.folder).
    #[arg(long, value_name = "DIR", conflicts_with = "data_pattern")]
    pub(crate) preprocessed_dir: Option<String>,

    /// Files by a pattern, such as 'traces/*.pkl*', all read at the start (data.pattern, data.load=whole).
    #[arg(long, value_name = "PATTERN")]
    pub(crate) data_pattern: Option<String>,

    /// A table (CSV) with the score of each id (data.scores).
    #[arg(long, value_name = "FILE")]
    pub(crate) scores_file: Option<String>,

    /// Batch files or shards that are kept in memory (data.cache_batches). Default: what the host line allows.
    #[arg(long, value_name = "N")]
    pub(crate) max_cache_batches: Option<u32>,

    /// Train the LSTM over the sequence alone (model.run).
    #[arg(long, overrides_with = "no_run_lstm")]
    pub(crate) run_lstm: bool,

    /// Leave it out.
    #[arg(long)]
    pub(crate) no_run_lstm: bool,

    /// Train the LSTM with a graph network.
    #[arg(long, overrides_with = "no_run_gnn_det")]
    pub(crate) run_gnn_det: bool,

    /// Leave it out.
    #[arg(long)]
    pub(crate) no_run_gnn_det: bool,

    /// Train the LSTM with a variational graph encoder.
    #[arg(long, overrides_with = "no_run_gvae")]
    pub(crate) run_gvae: bool,

    /// Leave it out.
    #[arg(long)]
    pub(crate) no_run_gvae: bool,
}
