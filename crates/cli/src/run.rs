//! `lowtide run`: keeps a training command of any kind alive.

mod outlook;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lowtide_core::{Bytes, counted};
use lowtide_keep::{
    Batch, ConfigCopy, End, Ending, KeepError, Launch, Options, Outcome, Peak, Plan, Preset, Request, Start, Story,
    Surroundings, Told, is_free, keep, new_folder, quoted,
};
use lowtide_sensors::{Options as SensorOptions, Sampler};
use serde::Serialize;

use crate::explain;
use crate::output::{Failure, print, printable, report};
use crate::run::outlook::Outlook;

/// Where runs are unless `--out` says otherwise.
const RUNS: &str = "runs";
const STANDARD_OUTPUT: &str = "-";
/// What helps where the micro-batch cannot be cut any further.
const LESS: &str = "a smaller model, shorter sequences, recompute or narrower numbers are left";
/// Files of settings are not larger; a script that is, is not looked into.
const LARGEST_FILE: u64 = 4 << 20;

/// Run any training command; when memory runs out, start it again with a smaller micro-batch.
///
/// The command runs as if lowtide were not there: output, keys, signals and exit code pass through, and the output is
/// kept in runs/NAME-N/. If the command ends because memory ran out, lowtide says why and starts it again one rung
/// lower: half the micro-batch, twice the gradient accumulation, so that every step still sees the same samples. Any
/// other failure ends it, with the command's own exit code. No process of the command is left behind, unless lowtide
/// itself is killed by SIGKILL: then the command ends when it next writes something.
///
/// How a rung is put on the command line is known for nanoGPT, Hugging Face's Trainer and Lightning, also under
/// torchrun; for other scripts say it with --rung.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide run -- python train.py config/train_gpt2.py          nanoGPT: batch and flags are found
  lowtide run -- torchrun --nproc_per_node=4 train.py          the whole group is started again
  lowtide run -- python run_clm.py --per_device_train_batch_size 16 ...
  lowtide run --rung '--bs={micro} --accum={accum}' -- python mine.py --bs 32
  lowtide run --rung-env 'BATCH={micro} ACCUM={accum}' --batch 32 -- ./train.sh
  lowtide run --config my.yaml --rung-config 'train.batch={micro} train.accum={accum}' -- python mine.py my.yaml
  lowtide run --resume-with '--init_from=resume' --checkpoint-glob 'out/ckpt.pt' -- python train.py
  lowtide run --dry-run -- python train.py                     what would be done

Exit codes:
  3    memory ran out, and no rung helped (or none is known)
  126  the command cannot be run
  127  the command is not there
  2    bad input to lowtide itself
  any other is the command's own; 128 + N where signal N ended it")]
pub(crate) struct RunArgs {
    /// What a rung changes on the command line: {micro} is the micro-batch, {accum} gradient accumulation. A flag
    /// that is there gets the new value, another one is added at the end.
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true)]
    rung: Option<String>,

    /// What a rung changes in the environment, as NAME={micro}.
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true)]
    rung_env: Option<String>,

    /// A configuration file on the command line (.py, .yaml, .json) that a rung changes, in a copy.
    #[arg(long, value_name = "FILE", requires = "rung_config")]
    config: Option<PathBuf>,

    /// What a rung changes in that file: KEY={micro}, with dots in the path of a nested key.
    #[arg(long, value_name = "TEMPLATE", requires = "config")]
    rung_config: Option<String>,

    /// The trainer whose flags a rung changes [default: found in the command line].
    #[arg(long, value_name = "NAME")]
    preset: Option<PresetName>,

    /// The micro-batch that the command has, where it is not on the command line.
    #[arg(long, value_name = "N")]
    batch: Option<u64>,

    /// The gradient accumulation that the command has, where it is not on the command line [default: 1].
    #[arg(long, value_name = "N")]
    accum: Option<u64>,

    /// What a restart adds to the command line to go on from the newest checkpoint, which is {checkpoint}.
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true, requires = "checkpoint_glob")]
    resume_with: Option<String>,

    /// Where checkpoints are. Only those written since the first start are taken.
    #[arg(long, value_name = "PATTERN", requires = "resume_with")]
    checkpoint_glob: Option<String>,

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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PresetName {
    #[value(name = "nanogpt")]
    NanoGpt,
    #[value(name = "hf")]
    HuggingFace,
    Lightning,
}

pub(crate) fn run(args: RunArgs) -> ExitCode {
    match kept(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => report(Err(failure)),
    }
}

fn kept(args: RunArgs) -> Result<u8, Failure> {
    let (out, json, quiet, dry_run) = (args.out, args.json, args.quiet, args.dry_run);
    let (grace, max_restarts) = (args.grace, args.max_restarts);
    let preset = args.preset.map(|name| match name {
        PresetName::NanoGpt => Preset::NanoGpt,
        PresetName::HuggingFace => Preset::HuggingFace,
        PresetName::Lightning => Preset::Lightning,
    });
    let request = Request {
        command: args.command,
        preset,
        rung: args.rung,
        rung_environment: args.rung_env,
        rung_config: args.config.zip(args.rung_config),
        micro: args.batch,
        accum: args.accum,
        resume_with: args.resume_with,
        checkpoints: args.checkpoint_glob,
    };
    let around = Surroundings { variable: &|name| env::var_os(name), read: &small_file, cards: &cards };
    let plan = Plan::make(request, &around)?;
    if dry_run {
        let outlook = Outlook::of(&plan, max_restarts)?;
        if let Some(path) = &json {
            write_json(path, &outlook.json(&plan))?;
        }
        if json.as_deref() != Some(Path::new(STANDARD_OUTPUT)) {
            print(&outlook.text(&plan))?;
        }
        return Ok(0);
    }
    if let Some(path) = &json {
        can_be_written(path)?;
    }
    let is_new = out.is_none();
    let folder = match out {
        Some(folder) => {
            fs::create_dir_all(&folder).map_err(|error| KeepError::File { path: folder.clone(), error })?;
            is_free(&folder)?;
            folder
        }
        None => new_folder(Path::new(RUNS), &plan.name())?,
    };
    if !quiet {
        say(&greeting(&plan, &folder));
    }
    let options = Options { folder, grace, max_restarts };
    let kept = keep(&plan, &options, &mut |told| {
        if let Some(text) = words(told, &plan, quiet) {
            say(&text);
        }
    });
    let story = match kept {
        Err(error @ (KeepError::NotFound { .. } | KeepError::NotExecutable { .. })) => {
            // Where nothing was run, nothing is in the folder that was made for it.
            if is_new {
                let _ = fs::remove_dir(&options.folder);
            }
            return Err(error.into());
        }
        kept => kept?,
    };
    // The command's exit code is worth more than its story.
    if let Some(Err(failure)) = json.map(|path| write_json(&path, &story)) {
        say(&format!("the story is not written: {}", failure.text));
    }
    Ok(story.exit_code)
}

fn write_json(path: &Path, told: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(told).expect("it has plain fields");
    match path == Path::new(STANDARD_OUTPUT) {
        true => print(&format!("{text}\n")),
        false => fs::write(path, format!("{text}\n")).map_err(|error| not_written(path, &error)),
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

/// Prints lines of our own among the command's, each with our name in front. A carriage return, for the terminal may
/// be raw.
fn say(text: &str) {
    let end = if io::IsTerminal::is_terminal(&io::stderr()) { "\r\n" } else { "\n" };
    let lines: String = text.lines().map(|line| format!("lowtide: {}{end}", printable(line))).collect();
    // Nobody may be there to read it.
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}

fn greeting(plan: &Plan, folder: &Path) -> String {
    format!("{}\nthe output is kept in {}", rungs_line(plan), folder.join("start-1.log").display())
}

fn setting(name: &OsStr, value: &OsStr) -> String {
    format!("{}={}", name.display(), value.display())
}

fn rungs_line(plan: &Plan) -> String {
    let by = plan.preset().map_or(String::new(), |preset| format!(" ({})", preset.name()));
    let group = if plan.group() > 1 { format!(", in a group of {}", plan.group()) } else { String::new() };
    match plan.rungs() {
        [] if plan.reason().is_some() => format!("no rungs{by}: {}", plan.reason().unwrap_or_default()),
        [] => "no rungs: if memory runs out the command is not started again; --rung says how it would need less"
            .to_owned(),
        [only] => format!("micro-batch {only}{by}{group}: no lower rung, for a micro-batch of 1 cannot be cut"),
        [first, .., last] => {
            let lower = counted(plan.rungs().len() as u64 - 1, "lower rung");
            format!("micro-batch x accumulation {first}{by}{group}, {lower} down to {last}")
        }
    }
}

/// What a command line adds to the command's own environment, and the command.
fn command_line(plan: &Plan, launch: &Launch) -> String {
    let own = launch.environment.iter().filter(|set| !plan.environment().contains(set));
    let set = own.map(|(name, value)| format!("{} ", quoted(&[setting(name, value)])));
    format!("{}{}", set.collect::<String>(), quoted(&launch.command))
}

fn copy_line(copy: &ConfigCopy) -> String {
    format!("{} is {} with {}", copy.path.display(), copy.original.display(), copy.changes.join(" "))
}

/// What is said of what happens; `None` for what is better passed over.
fn words(told: &Told<'_>, plan: &Plan, quiet: bool) -> Option<String> {
    match told {
        Told::Starting { number, launch, batch, checkpoint } => {
            let from = match (checkpoint, plan.resume()) {
                (Some(checkpoint), _) => format!(" from {}", checkpoint.display()),
                (None, Some((_, pattern))) => format!(" from the beginning, for this run wrote no whole {pattern},"),
                (None, None) => " from the beginning".to_owned(),
            };
            let batch = batch.map_or(String::new(), |batch| format!(" with micro-batch x accumulation {batch}"));
            let copy = launch.copy.as_ref().map_or(String::new(), |copy| format!("\n  {}", copy_line(copy)));
            Some(format!("start {number}{from}{batch}: {}{copy}", command_line(plan, launch)))
        }
        Told::NotWritten { error } => Some(format!("the story of this run is not kept: {error}")),
        Told::Ended { start } => ended(start),
        Told::Over { story } if story.starts.iter().any(|start| start.outcome == Outcome::OutOfMemory) => {
            Some(whole(story))
        }
        Told::Over { story } => (!quiet).then(|| over(story)),
        Told::Patience { grace } => {
            Some(format!("it has {} to end before it is killed; Ctrl-C once more kills it at once", seconds(*grace)))
        }
        Told::LeftBehind { processes } => {
            let they_are = if *processes == 1 { "it is" } else { "they are" };
            Some(format!("the command left {} behind; {they_are} asked to end", processes_of(*processes)))
        }
        Told::Killing { processes } => Some(format!("killing what did not end: {}", processes_of(*processes))),
    }
}

fn ended(start: &Start) -> Option<String> {
    let cut = start.log_cut.as_ref().map(|error| format!("{} is not whole: {error}", start.log));
    let lines: Vec<String> = [cut, meaning(start)].into_iter().flatten().collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn meaning(start: &Start) -> Option<String> {
    let told_kill = |line: &String| ["Killed", "SIGKILL", "-9", "signal 9"].iter().any(|words| line.contains(words));
    let killed = matches!(start.end, End::Signal(9) | End::Code(137)) || start.line.as_ref().is_some_and(told_kill);
    match start.outcome {
        Outcome::OutOfMemory => {
            let step = start.step.map_or(String::new(), |step| format!(" (last step told: {step})"));
            let cause = start.cause.as_deref().unwrap_or("");
            let mut text = format!("out of memory after {:.1} s{step}: {cause}", start.seconds);
            for line in explain::in_short(Path::new(&start.log), &start.command) {
                text.push_str(&format!("\n  {line}"));
            }
            Some(text)
        }
        Outcome::Failed if killed => {
            let line = start.line.as_ref().map_or(String::new(), |line| format!(" ({line})"));
            Some(format!("killed by SIGKILL{line}, and nothing shows that memory was the reason: not started again"))
        }
        Outcome::Failed if let Some(line) = &start.line => {
            Some(format!("`{line}` alone does not show that memory ran out: not started again"))
        }
        Outcome::Failed if matches!(start.end, End::Signal(7) | End::Code(135)) => {
            Some("a bus error: shared memory may be full; `lowtide doctor` shows the size of /dev/shm".to_owned())
        }
        _ => None,
    }
}

fn over(story: &Story) -> String {
    let peak =
        story.starts.last().and_then(|start| peak(&start.peak)).map_or(String::new(), |peak| format!("; {peak}"));
    format!("ended with {}{peak}", story.exit_code)
}

/// The whole story, a line for each start.
fn whole(story: &Story) -> String {
    let mut text = match story.ending {
        Ending::Finished => format!("finished after {}", counted(story.restarts as u64, "restart")),
        Ending::Interrupted => "ended because it was told to".to_owned(),
        Ending::Failed if last_ran_out(story) => "memory ran out, and no further start can be made".to_owned(),
        Ending::Failed => "ended by a failure that is not about memory".to_owned(),
        Ending::NoRungs => "memory ran out, and there is no lower rung to go to".to_owned(),
        Ending::LastRung => "memory ran out twice on the last rung, and nothing more can be done".to_owned(),
        Ending::BatchChanged => "memory ran out again, and a rung changed more than the micro-batch".to_owned(),
        Ending::TooManyRestarts if story.restarts == 0 => "memory ran out, and no restart is allowed".to_owned(),
        Ending::TooManyRestarts => format!("memory ran out again after {}", counted(story.restarts as u64, "restart")),
    };
    if let Some(effective) = story.effective_batch {
        text.push_str(&format!(", effective batch {effective} throughout"));
    }
    for (index, start) in story.starts.iter().enumerate() {
        text.push_str(&format!("\n  {}", line(index + 1, start)));
    }
    if story.batch_changed() {
        let told =
            story.starts.iter().enumerate().filter_map(|(index, start)| {
                Some(format!("start {} told of {}", index + 1, start.told_batch.as_ref()?))
            });
        let told = told.collect::<Vec<_>>().join(", ");
        text.push_str(&format!("\n  the effective batch did not stay the same: {told}"));
    }
    text.push_str(&format!("\n  logs and summary.json are in {}", story.folder));
    let hint = match story.ending {
        Ending::LastRung | Ending::TooManyRestarts if rungs_change_nothing(story) => {
            "every rung asked for just as much: look whether the command takes what a rung changes"
        }
        Ending::NoRungs if story.effective_batch.is_some() => LESS,
        Ending::NoRungs => "say how it needs less: --batch N --rung '--batch_size={micro} --accumulation={accum}'",
        Ending::LastRung => LESS,
        Ending::BatchChanged => {
            "say the command's own batch with --batch and --accum, and what a rung changes with --rung"
        }
        Ending::TooManyRestarts => "--max-restarts allows more",
        // What stood in its way may be what the start before left there.
        Ending::Failed if story.restarts > 0 && !last_ran_out(story) => {
            "look whether something that the start before left behind is in the way, or a word that a rung adds"
        }
        Ending::Finished | Ending::Interrupted | Ending::Failed => return text,
    };
    text.push_str(&format!("\nhint: {hint}"));
    text
}

fn last_ran_out(story: &Story) -> bool {
    story.starts.last().is_some_and(|start| start.outcome == Outcome::OutOfMemory)
}

/// Whether memory ran out on several rungs with the same figures.
fn rungs_change_nothing(story: &Story) -> bool {
    let [first, .., last] = story.starts.as_slice() else { return false };
    let figures = |start: &Start| start.line.clone().filter(|line| line.contains(|it: char| it.is_ascii_digit()));
    let same = |start: &Start| figures(start).is_some() && figures(start) == figures(first);
    last.rung > first.rung && story.starts.iter().all(same)
}

fn line(number: usize, start: &Start) -> String {
    let batch = start.batch.map_or(String::new(), |batch: Batch| format!("{batch}, "));
    let end = match (start.outcome, start.end) {
        (Outcome::OutOfMemory, _) => format!("out of memory: {}", start.cause.as_deref().unwrap_or("")),
        (Outcome::Finished, _) => "finished".to_owned(),
        (_, End::Code(code)) => format!("exit code {code}"),
        (_, End::Signal(signal)) => format!("signal {signal}"),
    };
    let resumed = start.resumed_from.as_ref().map_or(String::new(), |from| format!(" (from {from})"));
    let step = start.step.map_or(String::new(), |step| format!("step {step}, "));
    let peak = peak(&start.peak).map_or(String::new(), |peak| format!(", {peak}"));
    format!("start {number}{resumed}: {batch}{step}{:.1} s{peak}; {end}", start.seconds)
}

/// The most memory that was seen; `None` where the command ended before anybody looked.
fn peak(peak: &Peak) -> Option<String> {
    if peak.tree_bytes == 0 {
        return None;
    }
    let mut text = format!("peak {} of RAM", Bytes(peak.tree_bytes));
    for card in &peak.cards {
        let (used, total) = (Bytes(card.used_bytes), Bytes(card.total_bytes));
        text.push_str(&format!(", {used} of {total} on GPU {}", card.index));
    }
    Some(text)
}

fn processes_of(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// `10s`, `2m`, `1h`, `500ms`; a bare number is seconds.
/// No process needs longer to end.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

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
