//! What was typed after `lowtide generate scoring`, and which files then hold which made-up items.

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lowtide_core::Bytes;
use lowtide_tensorfile::Packing;
use lowtide_workloads::scoring::{ItemFiles, ItemFormat, PickledItems, STEPS, SyntheticItems};
use serde::Serialize;

use super::failure::Failure;

/// A sequence that long takes 960 MB.
const MOST_STEPS: u64 = 10_000_000;
/// Samples of a batch file where nothing else is said.
const PER_FILE: u64 = 64;
/// More than any folder is good for.
const MOST_FILES: usize = 1_000_000;
/// So many are 440 GB, and more with longer sequences.
const MOST_SAMPLES: u64 = 100_000_000;

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
pub(super) struct ScoringArgs {
    /// The folder: a new one, an empty one, or one that the same command began.
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,

    /// How large the files are together, at least (500MB, 8GiB). Before compression.
    #[arg(long, value_name = "SIZE", required_unless_present = "samples", conflicts_with = "samples")]
    pub(super) size: Option<Bytes>,

    /// How many samples there are.
    #[arg(long, value_name = "N")]
    pub(super) samples: Option<u64>,

    /// How many samples a file has. Default: 64, and 1 for pickles. The files under way are held in memory.
    #[arg(long, value_name = "N", conflicts_with = "file_size")]
    pub(super) per_file: Option<u64>,

    /// How large a file is, at least, instead of --per-file.
    #[arg(long, value_name = "SIZE")]
    pub(super) file_size: Option<Bytes>,

    /// The seed of all random numbers. A run with the same `seed` makes up the same samples for itself.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// How many steps the sequences have, from the fewest to the most. A step takes 96 bytes.
    #[arg(long, value_name = "MIN..MAX", default_value = "8..48", value_parser = steps)]
    pub(super) steps: RangeInclusive<u64>,

    /// What the files are: batches of torch.save, or pickles (one sample in each, or a list) with a scores.csv beside
    /// them.
    #[arg(long, value_name = "FORMAT", default_value = "pt")]
    pub(super) format: Format,

    /// Print what was written as a line of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Pt,
    Pkl,
    #[value(name = "pkl.gz")]
    PklGz,
}

impl Format {
    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("none is hidden").get_name().to_owned()
    }
}

fn steps(text: &str) -> Result<RangeInclusive<u64>, String> {
    let ends = text.split_once("..").map(|(least, most)| (least.parse(), most.trim_start_matches('=').parse()));
    match ends {
        Some((Ok(least), Ok(most))) if 1 <= least && least <= most && most <= MOST_STEPS => Ok(least..=most),
        Some((Ok::<u64, _>(_), Ok::<u64, _>(_))) => Err(format!("must go from at least 1 to at most {MOST_STEPS}")),
        _ => Err(format!("must be two numbers, such as {}..{}", STEPS.start(), STEPS.end())),
    }
}

/// Where a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cut {
    PerFile(u64),
    FileSize(Bytes),
}

/// What is to be written.
pub(super) struct ScoringFiles {
    pub(super) data: ItemFiles,
    pub(super) format: Format,
    pub(super) cut: Cut,
    /// The numbers of the samples of each file.
    pub(super) ranges: Vec<Range<u64>>,
}

impl ScoringFiles {
    pub(super) fn of(args: &ScoringArgs) -> Result<ScoringFiles, Failure> {
        let pickles = args.format != Format::Pt;
        let cut = match args.file_size {
            Some(size) => Cut::FileSize(size),
            None => Cut::PerFile(args.per_file.unwrap_or(if pickles { 1 } else { PER_FILE })),
        };
        if cut == Cut::PerFile(0) {
            return Err(Failure::new("--per-file must be at least 1"));
        }
        let alone = if cut == Cut::PerFile(1) { PickledItems::One } else { PickledItems::List };
        let format = match args.format {
            Format::Pt => ItemFormat::Pt,
            Format::Pkl => ItemFormat::Pickle(Packing::Plain, alone),
            Format::PklGz => ItemFormat::Pickle(Packing::Gzip, alone),
        };
        let items = SyntheticItems { seed: args.seed, count: u64::MAX };
        let data = ItemFiles { items, steps: args.steps.clone(), format };
        let (mut ranges, mut bytes, mut next) = (Vec::new(), Bytes::ZERO, 0);
        let is_enough = |bytes: Bytes, next: u64| match args.size {
            Some(size) => bytes >= size,
            None => Some(next) >= args.samples,
        };
        while !is_enough(bytes, next) {
            if ranges.len() >= MOST_FILES {
                return Err(Failure::new(format!("more than {MOST_FILES} files: make them larger with --per-file")));
            }
            if next >= MOST_SAMPLES {
                return Err(Failure::new(format!("more than {MOST_SAMPLES} samples: make them larger with --steps")));
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
            ranges.push(start..next);
        }
        if ranges.is_empty() {
            return Err(Failure::new("there must be at least one sample"));
        }
        Ok(ScoringFiles {
            data: ItemFiles { items: SyntheticItems { count: next, ..items }, ..data },
            format: args.format,
            cut,
            ranges,
        })
    }

    pub(super) fn samples(&self) -> u64 {
        self.data.items.count
    }

    /// Scores stand beside pickles, and in batches.
    pub(super) fn has_table(&self) -> bool {
        self.format != Format::Pt
    }

    /// The name of a file; names are in the order of the samples.
    pub(super) fn name_of(&self, file: usize) -> String {
        let digits = (self.ranges.len() - 1).to_string().len().max(5);
        let kind = if self.format == Format::Pt { "batch" } else { "trace" };
        format!("{kind}_{file:0digits$}.{}", self.format.name())
    }
}
