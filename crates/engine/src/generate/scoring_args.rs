//! What was typed after `lowtide generate scoring`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lowtide_core::Bytes;
use lowtide_workloads::scoring::STEPS;

/// A sequence that long takes 960 MB.
const MOST_STEPS: u64 = 10_000_000;

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
    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Pt => "pt",
            Format::Pkl => "pkl",
            Format::PklGz => "pkl.gz",
        }
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
