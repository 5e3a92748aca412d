//! `lowtide generate`: made-up data as files.

mod films;
mod folder;
mod progress;

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use lowtide_core::{Bytes, SCHEMA};
use lowtide_data::{DataError, write_scores};
use lowtide_tensorfile::{Packing, TensorFileError};
use lowtide_workloads::scoring::{Generated, ItemFiles, ItemFormat, Items, PickledItems, STEPS};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use self::films::FilmArgs;
use self::folder::OutFolder;
use self::progress::Progress;
use crate::exit::{self, Ended};
use crate::outlook::{print_json, to_stderr};

/// Samples of a batch file where nothing else is said.
const PER_FILE: u64 = 64;
/// The table of scores beside pickles.
const SCORES: &str = "scores.csv";
/// A sequence that long takes 960 MB.
const MOST_STEPS: u64 = 10_000_000;
/// More than any folder is good for.
const MOST_FILES: usize = 1_000_000;
/// So many are 440 GB, and more with longer sequences.
const MOST_SAMPLES: u64 = 100_000_000;

/// Write made-up training data of any size.
///
/// The samples are those that the workload makes up for itself, as files like those that people have.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct GenerateArgs {
    /// Whose data it is.
    #[command(subcommand)]
    data: Data,
}

#[derive(Debug, Subcommand)]
enum Data {
    Scoring(ScoringArgs),
    Deblur(FilmArgs),
}

/// Write made-up traces with a sequence, a graph and a score.
///
/// The score of a sample depends on its sequence and on its graph, so that a model that sees both does better. Files are
/// written whole or not at all; the same command, run again, goes on where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide generate scoring --out data/traces --size 500MB
  lowtide generate scoring --out data/traces --samples 2000 --per-file 100
  lowtide generate scoring --out data/long --size 8GB --steps 50000..100000 --per-file 4
  lowtide generate scoring --out data/raw --samples 500 --format pkl.gz

Exit codes:
  0    finished
  2    bad input or a full disk; the files that are there are whole
  130  interrupted; the files that are there are whole")]
struct ScoringArgs {
    /// The folder: a new one, an empty one, or one that the same command began.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// How large the files are together, at least (500MB, 8GiB). Before compression.
    #[arg(long, value_name = "SIZE", required_unless_present = "samples", conflicts_with = "samples")]
    size: Option<Bytes>,

    /// How many samples there are.
    #[arg(long, value_name = "N")]
    samples: Option<u64>,

    /// How many samples a file has. Default: 64, and 1 for pickles. The files under way are held in memory.
    #[arg(long, value_name = "N", conflicts_with = "file_size")]
    per_file: Option<u64>,

    /// How large a file is, at least, instead of --per-file.
    #[arg(long, value_name = "SIZE")]
    file_size: Option<Bytes>,

    /// The seed of all random numbers. A run with the same `seed` makes up the same samples for itself.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many steps the sequences have, from the fewest to the most. A step takes 96 bytes.
    #[arg(long, value_name = "MIN..MAX", default_value = "8..48", value_parser = steps)]
    steps: RangeInclusive<u64>,

    /// What the files are: batches of torch.save, or pickles (one sample in each, or a list) with a scores.csv beside
    /// them.
    #[arg(long, value_name = "FORMAT", default_value = "pt")]
    format: Format,

    /// Print what was written as a line of JSON on standard output, and nothing else there.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Pt,
    Pkl,
    #[value(name = "pkl.gz")]
    PklGz,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Pt => "pt",
            Format::Pkl => "pkl",
            Format::PklGz => "pkl.gz",
        }
    }
}

/// Why a command ends early, and what to do about it.
#[derive(Debug)]
struct Failure {
    text: String,
    hint: Option<String>,
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Failure {
        let source = match &error {
            DataError::File(TensorFileError::Io { source, .. }) => Some(source.kind()),
            _ => None,
        };
        let full = source == Some(std::io::ErrorKind::StorageFull);
        let hint = if full {
            Some("make room, then run the same command again: the files that are there are whole".to_owned())
        } else {
            error.hint().map(str::to_owned)
        };
        Failure { text: error.to_string(), hint }
    }
}

/// Carries the command out, says what came of it and gives the exit code.
pub(crate) fn run(args: &GenerateArgs) -> ExitCode {
    let ended = match &args.data {
        Data::Scoring(args) => generate(args),
        Data::Deblur(args) => films::write(args),
    };
    match ended {
        Ok(ended) => exit::report(Ok(ended)),
        Err(failure) => {
            to_stderr(&format!("error: {}", failure.text));
            if let Some(hint) = failure.hint {
                to_stderr(&format!("hint: {hint}"));
            }
            ExitCode::from(2)
        }
    }
}

fn generate(args: &ScoringArgs) -> Result<Ended, Failure> {
    let began = Instant::now();
    let plan = Plan::of(args)?;
    let folder = OutFolder::open(&args.out, &plan)?;
    let stop = signals().map_err(|error| Failure { text: format!("cannot listen to signals: {error}"), hint: None })?;
    let progress = Progress::new(plan.samples(), args.json);
    let scores = write_files(&plan, &folder, &stop, &progress);
    progress.end();
    let Some(scores) = scores? else {
        let there = (0..plan.files.len()).filter(|file| folder.path_of(&plan, *file).exists()).count();
        to_stderr(&format!("interrupted: {there} of {} files are there; the same command goes on", plan.files.len()));
        return Ok(Ended::Interrupted);
    };
    if plan.has_table() {
        let numbers = 0..plan.samples();
        write_scores(&folder.path().join(SCORES), numbers.map(|number| plan.data.items.id(number)).zip(scores))?;
    }
    let told = Told { folder: &folder, plan: &plan, seconds: began.elapsed().as_secs_f64() };
    if args.json {
        told.print_json();
    } else {
        told.say();
    }
    Ok(Ended::Finished)
}

/// Where a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Cut {
    PerFile(u64),
    FileSize(Bytes),
}

/// What is to be written.
struct Plan {
    data: ItemFiles,
    format: Format,
    cut: Cut,
    /// The numbers of the samples of each file.
    files: Vec<Range<u64>>,
}

impl Plan {
    fn of(args: &ScoringArgs) -> Result<Plan, Failure> {
        let wrong = |text: &str| Failure { text: text.to_owned(), hint: None };
        let pickles = args.format != Format::Pt;
        let cut = match args.file_size {
            Some(size) => Cut::FileSize(size),
            None => Cut::PerFile(args.per_file.unwrap_or(if pickles { 1 } else { PER_FILE })),
        };
        if cut == Cut::PerFile(0) {
            return Err(wrong("--per-file must be at least 1"));
        }
        let alone = if cut == Cut::PerFile(1) { PickledItems::One } else { PickledItems::List };
        let format = match args.format {
            Format::Pt => ItemFormat::Pt,
            Format::Pkl => ItemFormat::Pickle(Packing::Plain, alone),
            Format::PklGz => ItemFormat::Pickle(Packing::Gzip, alone),
        };
        let items = Generated { seed: args.seed, count: u64::MAX };
        let data = ItemFiles { items, steps: args.steps.clone(), format };
        let (mut files, mut bytes, mut next) = (Vec::new(), Bytes::ZERO, 0);
        let is_enough = |bytes: Bytes, next: u64| match args.size {
            Some(size) => bytes >= size,
            None => Some(next) >= args.samples,
        };
        while !is_enough(bytes, next) {
            if files.len() >= MOST_FILES {
                return Err(wrong(&format!("more than {MOST_FILES} files: make them larger with --per-file")));
            }
            if next >= MOST_SAMPLES {
                return Err(wrong(&format!("more than {MOST_SAMPLES} samples: make them larger with --steps")));
            }
            let (start, mut file_bytes) = (next, Bytes::ZERO);
            let is_full = |next: u64, file_bytes: Bytes| match cut {
                Cut::FileSize(size) => file_bytes >= size && next > start,
                Cut::PerFile(samples) => next - start >= samples,
            };
            while next < MOST_SAMPLES
                && !is_full(next, file_bytes)
                && !is_enough(bytes.saturating_add(file_bytes), next)
            {
                file_bytes = file_bytes.saturating_add(data.bytes_of(next));
                next += 1;
            }
            bytes = bytes.saturating_add(file_bytes);
            files.push(start..next);
        }
        if files.is_empty() {
            return Err(wrong("there must be at least one sample"));
        }
        Ok(Plan {
            data: ItemFiles { items: Generated { count: next, ..items }, ..data },
            format: args.format,
            cut,
            files,
        })
    }

    fn samples(&self) -> u64 {
        self.data.items.count
    }

    /// Scores stand beside pickles, and in batches.
    fn has_table(&self) -> bool {
        self.format != Format::Pt
    }

    /// The name of a file; names are in the order of the samples.
    fn name_of(&self, file: usize) -> String {
        let digits = (self.files.len() - 1).to_string().len().max(5);
        let kind = if self.format == Format::Pt { "batch" } else { "trace" };
        format!("{kind}_{file:0digits$}.{}", self.format.name())
    }
}

/// Writes the files that are not there yet, on all cores; gives the scores of all samples where a table is wanted, and
/// nothing where somebody asked the command to end.
fn write_files(
    plan: &Plan,
    folder: &OutFolder,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<Option<Vec<f32>>, Failure> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<DataError>> = Mutex::new(None);
    let halt = AtomicBool::new(false);
    let is_over = || stop.load(Ordering::Relaxed) || halt.load(Ordering::Relaxed);
    let work = || {
        let mut mine = Vec::new();
        while !is_over() {
            let file = next.fetch_add(1, Ordering::Relaxed);
            let Some(numbers) = plan.files.get(file).cloned() else { break };
            match write_file(plan, folder, file, &is_over) {
                Ok(Some(scores)) => mine.push((file, scores)),
                Ok(None) => break,
                Err(error) => {
                    halt.store(true, Ordering::Relaxed);
                    lock(&failed).get_or_insert(error);
                }
            }
            progress.add(numbers.end - numbers.start);
        }
        mine
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(plan.files.len());
    let mut written: Vec<(usize, Vec<f32>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("writing does not panic")).collect()
    });
    if let Some(error) = lock(&failed).take() {
        return Err(error.into());
    }
    if written.len() < plan.files.len() {
        return Ok(None);
    }
    written.sort_unstable_by_key(|(file, _)| *file);
    Ok(Some(written.into_iter().flat_map(|(_, scores)| scores).collect()))
}

/// Writes a file unless it is there; gives the scores where a table is wanted.
fn write_file(
    plan: &Plan,
    folder: &OutFolder,
    file: usize,
    is_over: &impl Fn() -> bool,
) -> Result<Option<Vec<f32>>, DataError> {
    let numbers = plan.files[file].clone();
    if folder.keeps(plan, file) {
        let scores = numbers.filter(|_| plan.has_table()).map(|number| plan.data.score(number));
        return Ok(Some(scores.collect()));
    }
    let scores = plan.data.write(&folder.path_of(plan, file), numbers, is_over)?;
    Ok(scores.map(|scores| if plan.has_table() { scores } else { Vec::new() }))
}

/// What came of it.
struct Told<'a> {
    folder: &'a OutFolder,
    plan: &'a Plan,
    seconds: f64,
}

impl Told<'_> {
    fn say(&self) {
        let (files, samples) = (self.plan.files.len(), self.plan.samples());
        let kept = match self.folder.kept() {
            0 => String::new(),
            kept => format!(", {kept} of them from before"),
        };
        let path = self.folder.path().display();
        to_stderr(&format!("{files} files, {samples} samples, {}{kept}, in {:.1} s", self.bytes(), self.seconds));
        to_stderr(&format!("look into them with: lowtide data {path}"));
    }

    fn print_json(&self) {
        print_json(&serde_json::json!({
            "schema": SCHEMA,
            "event": "generated",
            "folder": self.folder.path(),
            "format": self.plan.format.name(),
            "files": self.plan.files.len(),
            "kept": self.folder.kept(),
            "samples": self.plan.samples(),
            "bytes": self.bytes(),
            "seconds": self.seconds,
        }));
    }

    /// On disk.
    fn bytes(&self) -> Bytes {
        let length = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
        let paths = (0..self.plan.files.len()).map(|file| self.folder.path_of(self.plan, file));
        Bytes(paths.map(|path| length(&path)).sum())
    }
}

/// SIGINT and SIGTERM end it between two samples, a second one at once.
fn signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn steps(text: &str) -> Result<RangeInclusive<u64>, String> {
    let ends = text.split_once("..").map(|(least, most)| (least.parse(), most.trim_start_matches('=').parse()));
    match ends {
        Some((Ok(least), Ok(most))) if 1 <= least && least <= most && most <= MOST_STEPS => Ok(least..=most),
        Some((Ok::<u64, _>(_), Ok::<u64, _>(_))) => Err(format!("must go from at least 1 to at most {MOST_STEPS}")),
        _ => Err(format!("must be two numbers, such as {}..{}", STEPS.start(), STEPS.end())),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
