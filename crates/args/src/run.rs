//! What `lowtide run` takes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use lowtide_core::Bytes;
use lowtide_trainers::Preset;

/// Run any training command; when memory runs out, start it again with a smaller micro-batch.
///
/// The command runs as if lowtide were not there: output, keys, signals and exit code pass through, and the output is
/// kept in runs/NAME-N/. If the command ends because memory ran out, lowtide says why and starts it again with half
/// the micro-batch and twice the gradient accumulation, so that every step still sees as many samples. Any other
/// failure ends it, with the command's own exit code. No process of the command is left behind, unless lowtide itself
/// is killed by SIGKILL: then the command ends when it next writes something.
///
/// To go on later, after Ctrl-C or a reboot, run it again with the script's own flag to resume.
///
/// Where the batch is set is known for nanoGPT, Hugging Face's Trainer and Lightning, and found in other scripts: flags
/// that the script declares (--batch-size, --grad-accum, ...), arguments of calls and constants in its source, which a
/// retry changes in a copy. For all else say it with --retry-with.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide run -- python train.py config/train_gpt2.py          nanoGPT: batch and flags are found
  lowtide run -- torchrun --nproc_per_node=4 train.py          the whole group is restarted
  lowtide run -- python run_clm.py --per_device_train_batch_size 16 ...
  lowtide run -- python mine.py --bs 32                        its flags are found
  lowtide run --retry-with '--bs={micro} --accum={accum}' -- ./mine --bs 32
  lowtide run --retry-env 'BATCH={micro} ACCUM={accum}' --batch 32 -- ./train.sh
  lowtide run --config my.yaml --retry-config 'train.batch={micro} train.accum={accum}' -- python mine.py my.yaml
  lowtide run --shrink-batch -- python evaluate.py --batch-size 64
  lowtide run --resume-with '--init_from=resume' --checkpoint-glob 'out/ckpt.pt' -- python train.py
  lowtide run --inside -- python finetune.py                   Hugging Face, Lightning: no restart
  lowtide run --dry-run -- python train.py                     what would be done

Exit codes:
  3    memory ran out, and no smaller micro-batch helped, or none could be set
  126  the command cannot be run
  127  the command is not there
  2    bad input to lowtide itself
  any other is the command's own; a signal that ended it ends lowtide too (128 + N in shells)")]
pub struct RunArgs {
    /// What a retry changes on the command line: {micro} is the micro-batch, {accum} gradient accumulation. A flag
    /// that is there gets the new value, another one is added at the end.
    #[arg(long, alias = "rung", value_name = "TEMPLATE", allow_hyphen_values = true)]
    pub retry_with: Option<String>,

    /// What a retry changes in the environment, as NAME={micro}.
    #[arg(long, alias = "rung-env", value_name = "TEMPLATE", allow_hyphen_values = true)]
    pub retry_env: Option<String>,

    /// A configuration file on the command line (.py, .yaml, .json), or the script, that a retry changes, in a copy.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "retry_config")]
    pub config: Option<PathBuf>,

    /// What a retry changes in that file: KEY={micro}, with dots in the path of a nested key. In Python, KEY may be an
    /// argument of a call.
    #[arg(long, alias = "rung-config", value_name = "TEMPLATE", requires = "config")]
    pub retry_config: Option<String>,

    /// The batch may get smaller without more gradient accumulation: for inference, evaluation, or where another
    /// effective batch does no harm. Without it, a script that does not accumulate gradients is not retried.
    #[arg(long, alias = "shrink")]
    pub shrink_batch: bool,

    /// The trainer whose flags a retry changes [default: found in the command line].
    #[arg(long, value_name = "NAME", value_parser = presets())]
    pub preset: Option<Preset>,

    /// The micro-batch that the command has, where it is not on the command line.
    #[arg(long, value_name = "N")]
    pub batch: Option<u64>,

    /// The gradient accumulation that the command has, where it is not on the command line [default: 1].
    #[arg(long, value_name = "N")]
    pub accum: Option<u64>,

    /// What a restart adds to the command line to resume from the newest checkpoint, which is {checkpoint} [default:
    /// as nanoGPT, Hugging Face's Trainer, accelerate's examples and Lightning take it, where the script shows it].
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true, requires = "checkpoint_glob")]
    pub resume_with: Option<String>,

    /// Where checkpoints are. Only those written since the first start are taken.
    #[arg(long, value_name = "PATTERN", requires = "resume_with")]
    pub checkpoint_glob: Option<String>,

    /// Begin every restart at step 0, also where the trainer could resume from a checkpoint of this run.
    #[arg(long, conflicts_with = "resume_with")]
    pub no_resume: bool,

    /// Forget the micro-batch that this command got through with the last time, and start as it is typed.
    #[arg(long)]
    pub forget: bool,

    /// How often the command is restarted at most. With 0 it runs once, with the batch as it is typed.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub max_restarts: u32,

    /// How long the command may take to end after SIGTERM or a second Ctrl-C before it is killed: 10s, 2m, 500ms
    /// [default: 10s after a second SIGTERM or Ctrl-C, and all the time it wants after the first].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub grace: Option<Duration>,

    /// Copy no checkpoints that a start may write over. Without it they are copied to runs/NAME-N/before-start-K/ first.
    #[arg(long)]
    pub no_copies: bool,

    /// What every Python of the command that uses PyTorch writes into the run's folder when memory runs out, before it
    /// dies: what was asked for, by which lines of code, and PyTorch's memory snapshot. Which line made each tensor is
    /// in it in the first 10 minutes after a crash, or always, which makes small steps up to 15 % slower [default:
    /// after-crash, or the variable LOWTIDE_WATCH_MEMORY].
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "after-crash")]
    pub watch_memory: Option<WatchMemory>,

    /// Put nothing into the command's Pythons that writes down how memory ran out. The same as --watch-memory=off.
    #[arg(long, conflicts_with = "watch_memory")]
    pub no_watch_memory: bool,

    /// Put lowtide's guard into the training loop of Hugging Face's Trainer or Lightning's, without a change of the
    /// script: an out-of-memory error is undone inside the process, and the same batch runs again in smaller pieces. The
    /// command's Python needs the package (pip install . in a clone of lowtide); one device.
    #[arg(long)]
    pub inside: bool,

    /// Pin this much host memory in each process of the command that uses CUDA, for PyTorch (2.8 or newer) to fall back
    /// on when the device is full: a step that is too large is slow instead of out of memory. The command's Python
    /// needs the package (pip install . in a clone of lowtide).
    #[arg(long, value_name = "SIZE")]
    pub reserve: Option<Bytes>,

    /// The folder for logs and summary.json, made if need be; one that has another run's is refused [default: a new
    /// runs/NAME-N].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// Write the story as JSON to this file too; with --dry-run, what would be done. `-` is standard output: after
    /// the command's own, or in the place of the text of --dry-run.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Say nothing unless memory runs out.
    #[arg(long, short)]
    pub quiet: bool,

    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// The command, after `--`, as it would be typed without lowtide.
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// When PyTorch's history of allocations is kept, for what is written down when memory runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WatchMemory {
    /// From the first start on.
    Always,
    /// In the first 10 minutes of a restart after a crash.
    AfterCrash,
    /// Never, and nothing else is written down either.
    Off,
}

/// Trainers by the names that people type.
fn presets() -> impl TypedValueParser<Value = Preset> {
    let by_name = |name: String| Preset::ALL.into_iter().find(|preset| preset.name() == name);
    PossibleValuesParser::new(Preset::ALL.map(Preset::name)).map(move |name| by_name(name).expect("one of them"))
}

/// No process needs longer to end.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// `10s`, `2m`, `1h`, `500ms`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("{other} is none of ms, s, m, h")),
    };
    let number: f64 = digits.trim().parse().map_err(|_| "not a time such as 10s".to_owned())?;
    let time = Duration::try_from_secs_f64(number * unit).map_err(|_| "not a time such as 10s".to_owned())?;
    if time > LONGEST { Err("more than a week".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let cases = [("10s", 10_000), ("2m", 120_000), ("500ms", 500), ("7", 7000), ("0", 0), ("1.5s", 1500)];
        for (text, milliseconds) in cases {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "-1s", "10 parsecs", "nan", "inf", "1e400"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
