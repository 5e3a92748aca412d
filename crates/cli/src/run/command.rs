//! What is typed after `lowtide run`, and how it is carried out.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lowtide_keep::{
    Chronicle, CommandLadder, CommandRequest, EffectiveBatch, EndKind, KeepError, KeepOptions, ResumeRequest, SUMMARY,
    is_free, keep, lesson, new_folder,
};
use lowtide_sensors::{Options as SensorOptions, Sampler};
use lowtide_trainers::{Access, Preset};
use serde::Serialize;

use crate::output::{Failure, RUNS, json_text, print, print_json, printable, report};
use crate::run::dry_run::DryRun;
use crate::run::memory::Memory;
use crate::run::{exit, narration};

const STANDARD_OUTPUT: &str = "-";
/// Files of settings are not larger; a script that is, is not looked into.
const LARGEST_FILE: u64 = 4 << 20;

/// Run any training command; when memory runs out, start it again with a smaller micro-batch.
///
/// The command runs as if lowtide were not there: output, keys, signals and exit code pass through, and the output is
/// kept in runs/NAME-N/. If the command ends because memory ran out, lowtide says why and starts it again with half
/// the micro-batch and twice the gradient accumulation, so that every step still sees as many samples. Any other
/// failure ends it, with the command's own exit code. No process of the command is left behind, unless lowtide itself
/// is killed by SIGKILL: then the command ends when it next writes something.
///
/// Where the batch is set is known for nanoGPT, Hugging Face's Trainer and Lightning, and found in other scripts: flags
/// that the script declares (--batch-size, --grad-accum, ...), arguments of calls and constants in its source, which a
/// retry changes in a copy. For all else say it with --retry-with.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide run -- python train.py config/train_gpt2.py          nanoGPT: batch and flags are found
  lowtide run -- torchrun --nproc_per_node=4 train.py          the whole group is started again
  lowtide run -- python run_clm.py --per_device_train_batch_size 16 ...
  lowtide run -- python mine.py --bs 32                        its flags are found
  lowtide run --retry-with '--bs={micro} --accum={accum}' -- ./mine --bs 32
  lowtide run --retry-env 'BATCH={micro} ACCUM={accum}' --batch 32 -- ./train.sh
  lowtide run --config my.yaml --retry-config 'train.batch={micro} train.accum={accum}' -- python mine.py my.yaml
  lowtide run --shrink-batch -- python evaluate.py --batch-size 64
  lowtide run --resume-with '--init_from=resume' --checkpoint-glob 'out/ckpt.pt' -- python train.py
  lowtide run --dry-run -- python train.py                     what would be done

Exit codes:
  3    memory ran out, and no smaller micro-batch helped (or it is not known how to set one)
  126  the command cannot be run
  127  the command is not there
  2    bad input to lowtide itself
  any other is the command's own; 128 + N where signal N ended it")]
pub(crate) struct RunArgs {
    /// What a retry changes on the command line: {micro} is the micro-batch, {accum} gradient accumulation. A flag
    /// that is there gets the new value, another one is added at the end.
    #[arg(long, alias = "rung", value_name = "TEMPLATE", allow_hyphen_values = true)]
    retry_with: Option<String>,

    /// What a retry changes in the environment, as NAME={micro}.
    #[arg(long, alias = "rung-env", value_name = "TEMPLATE", allow_hyphen_values = true)]
    retry_env: Option<String>,

    /// A configuration file on the command line (.py, .yaml, .json), or the script, that a retry changes, in a copy.
    #[arg(long, value_name = "FILE", requires = "retry_config")]
    config: Option<PathBuf>,

    /// What a retry changes in that file: KEY={micro}, with dots in the path of a nested key. In Python, KEY may be an
    /// argument of a call.
    #[arg(long, alias = "rung-config", value_name = "TEMPLATE", requires = "config")]
    retry_config: Option<String>,

    /// The batch may get smaller without more gradient accumulation: for inference, evaluation, or where another
    /// effective batch does no harm. Without it, a script that does not accumulate gradients is not retried.
    #[arg(long, alias = "shrink")]
    shrink_batch: bool,

    /// The trainer whose flags a retry changes [default: found in the command line].
    #[arg(long, value_name = "NAME", value_parser = presets())]
    preset: Option<Preset>,

    /// The micro-batch that the command has, where it is not on the command line.
    #[arg(long, value_name = "N")]
    batch: Option<u64>,

    /// The gradient accumulation that the command has, where it is not on the command line [default: 1].
    #[arg(long, value_name = "N")]
    accum: Option<u64>,

    /// What a restart adds to the command line to resume from the newest checkpoint, which is {checkpoint} [default:
    /// as nanoGPT, Hugging Face's Trainer, accelerate's examples and Lightning take it, where the script shows it].
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true, requires = "checkpoint_glob")]
    resume_with: Option<String>,

    /// Where checkpoints are. Only those written since the first start are taken.
    #[arg(long, value_name = "PATTERN", requires = "resume_with")]
    checkpoint_glob: Option<String>,

    /// Begin every restart at step 0, also where the trainer could resume from a checkpoint of this run.
    #[arg(long, conflicts_with = "resume_with")]
    no_resume: bool,

    /// Forget the micro-batch that this command got through with the last time, and start as it is typed.
    #[arg(long)]
    forget: bool,

    /// How often the command is started again at most.
    #[arg(long, value_name = "N", default_value_t = 8)]
    max_restarts: u32,

    /// How long the command may take to end after SIGTERM or a second Ctrl-C before it is killed: 10s, 2m, 500ms.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    grace: Duration,

    /// The folder for logs and summary.json, made if need be; one that has another run's is refused [default: a new
    /// runs/NAME-N].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Write the story as JSON to this file too; with --dry-run, what would be done. `-` is standard output: after
    /// the command's own, or in the place of the text of --dry-run.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Say nothing unless memory runs out.
    #[arg(long, short)]
    quiet: bool,

    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,

    /// The command, after `--`, as it would be typed without lowtide.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: RunArgs) -> ExitCode {
    match kept(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => report(Err(failure)),
    }
}

fn kept(args: RunArgs) -> Result<u8, Failure> {
    let request = CommandRequest {
        command: args.command,
        preset: args.preset,
        rung: args.retry_with,
        rung_environment: args.retry_env,
        rung_config: args.config.zip(args.retry_config),
        micro: args.batch,
        accum: args.accum,
        effective: if args.shrink_batch { EffectiveBatch::MayShrink } else { EffectiveBatch::Kept },
        resume: match args.resume_with.zip(args.checkpoint_glob) {
            Some((template, pattern)) => ResumeRequest::Own { template, pattern },
            None if args.no_resume => ResumeRequest::Off,
            None => ResumeRequest::Found,
        },
    };
    let access = Access { variable: &|name| env::var_os(name), read: &small_file, cards: &cards };
    let ladder = CommandLadder::make(request, &access)?;
    let runs = args.out.as_deref().map_or(Path::new(RUNS), parent);
    let mut memory = Memory::read(runs);
    if args.dry_run {
        let first = if args.forget { None } else { memory.found(&ladder) };
        let rehearsal = DryRun::of(&ladder, Path::new(RUNS), args.max_restarts, first)?;
        if let Some(path) = &args.json {
            write_json(path, &rehearsal.json(&ladder))?;
        }
        if args.json.as_deref() != Some(Path::new(STANDARD_OUTPUT)) {
            print(&rehearsal.text(&ladder))?;
        }
        return Ok(0);
    }
    if let Some(path) = &args.json {
        can_be_written(path)?;
    }
    if args.forget {
        memory.forget(&ladder);
    }
    let first = memory.found(&ladder);
    let is_new = args.out.is_none();
    let folder = match args.out {
        Some(folder) => {
            fs::create_dir_all(&folder).map_err(KeepError::file(&folder))?;
            is_free(&folder)?;
            folder
        }
        None => new_folder(Path::new(RUNS), &ladder.name())?,
    };
    if !args.quiet {
        say(&narration::greeting(&ladder, &folder));
    }
    if let Some(first) = first.as_ref().filter(|_| !args.quiet) {
        say(&first.greeting());
    }
    let first_rung = first.map_or(0, |first| first.rung);
    let options = KeepOptions { folder, grace: args.grace, max_restarts: args.max_restarts, first_rung };
    let kept = keep(&ladder, &options, &mut |notice| {
        if let Some(text) = narration::words(notice, &ladder) {
            say(&text);
        }
    });
    // Where nothing was run, nothing is in the folder that was made for it.
    if let Err(KeepError::NotFound { .. } | KeepError::NotExecutable { .. }) = kept
        && is_new
    {
        let _ = fs::remove_dir(&options.folder);
    }
    let chronicle = kept?;
    let exit_code = exit::code(&chronicle, &ladder);
    let summary = Summary { chronicle: &chronicle, exit_code };
    // The command's exit code is worth more than its story.
    if let Err(error) = lowtide_disk::write(&options.folder.join(SUMMARY), json_text(&summary).as_bytes()) {
        say(&format!("the story of this run is not kept: {error}"));
    }
    if chronicle.starts.iter().any(|start| start.outcome == EndKind::OutOfMemory) {
        say(&narration::whole(&chronicle, &ladder));
        if let Some(start) = lesson(&chronicle.starts) {
            say(&memory.keep(&ladder, start, &options.folder));
        }
    } else if !args.quiet {
        say(&narration::over(&chronicle, exit_code));
    }
    if let (None, Some(path)) = (&chronicle.failure, &args.json)
        && let Err(failure) = write_json(path, &summary)
    {
        say(&format!("the story is not written: {}", failure.text));
    }
    chronicle.failure.map_or(Ok(exit_code), |error| Err(error.into()))
}

/// What happened, and the exit code for it.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    chronicle: &'a Chronicle,
    exit_code: u8,
}

/// The folder in which a folder is.
fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    match path == Path::new(STANDARD_OUTPUT) {
        true => print_json(&json_text(value)),
        false => fs::write(path, json_text(value)).map_err(|error| not_written(path, &error)),
    }
}

/// Finds out whether a file can be written, which leaves it there, empty where it was not.
fn can_be_written(path: &Path) -> Result<(), Failure> {
    if path == Path::new(STANDARD_OUTPUT) {
        return Ok(());
    }
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(|_| ()).map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let hint = "--json names a file that can be written, or `-` for standard output";
    Failure::bad_input(format!("{}: {error}", path.display()), Some(hint.to_owned()))
}

/// Prints lines of our own among the command's: with our name and the time in front, and in colour where a person reads.
pub(super) fn say(text: &str) {
    // Nobody may be there to read it.
    let _ = io::stderr().lock().write_all(speech(text, Reader::of_errors(), &clock()).as_bytes());
}

/// Who reads what is printed to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A person in front of a terminal that shows colours.
    Colours,
    /// A person who wants none.
    Plain,
    /// A file, or another program.
    File,
}

impl Reader {
    fn of_errors() -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        match io::IsTerminal::is_terminal(&io::stderr()) {
            false => Self::File,
            true if is_set("NO_COLOR") || env::var_os("TERM").is_some_and(|term| term == "dumb") => Self::Plain,
            true => Self::Colours,
        }
    }
}

/// Lines of our own as they are printed.
fn speech(text: &str, reader: Reader, clock: &str) -> String {
    let line = |line: &str| match reader {
        Reader::File => format!("lowtide: {}\n", printable(line)),
        // A carriage return, for the terminal may be raw.
        Reader::Plain => format!("lowtide {clock}: {}\r\n", printable(line)),
        Reader::Colours => format!("\x1b[1;36mlowtide {clock}:\x1b[0m {}\r\n", printable(line)),
    };
    text.lines().map(line).collect()
}

/// The time of day where this machine stands.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
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

fn small_file(path: &Path) -> Option<String> {
    let small = path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LARGEST_FILE);
    if small { fs::read_to_string(path).ok() } else { None }
}

fn cards() -> u64 {
    Sampler::new(SensorOptions::default()).fast(0.0).gpus.cards.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_lines_stand_out_where_a_person_reads() {
        assert_eq!(speech("a\nb\u{9b}", Reader::File, "10:20:30"), "lowtide: a\nlowtide: b\\u{9b}\n");
        assert_eq!(speech("a", Reader::Plain, "10:20:30"), "lowtide 10:20:30: a\r\n");
        assert_eq!(speech("a", Reader::Colours, "10:20:30"), "\x1b[1;36mlowtide 10:20:30:\x1b[0m a\r\n");
    }

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
