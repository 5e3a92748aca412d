//! What `lowtide generate` takes.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use lowtide_core::Bytes;

/// A sequence that long takes 960 MB.
const MOST_STEPS: u64 = 10_000_000;
/// How many steps sequences have where nothing else is said, as those that the workload makes up for itself.
const STEPS: &str = "8..48";
/// The most rows and columns of a frame.
const MOST_SIDE: u32 = 1 << 15;

/// Write made-up training data of any size.
///
/// The samples are those that the workload makes up for itself, as files like those that people have.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub struct GenerateArgs {
    /// Whose data it is.
    #[command(subcommand)]
    pub data: Data,
}

/// A workload with its data.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "each is described where its arguments are, and the help repeats what stands there")]
pub enum Data {
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
pub struct ScoringArgs {
    /// The folder: a new one, an empty one, or one that the same command began.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,

    /// How large the files are together, at least (500MB, 8GiB). Before compression.
    #[arg(long, value_name = "SIZE", required_unless_present = "samples", conflicts_with = "samples")]
    pub size: Option<Bytes>,

    /// How many samples there are.
    #[arg(long, value_name = "N")]
    pub samples: Option<u64>,

    /// How many samples a file has. Default: 64, and 1 for pickles. The files under way are held in memory.
    #[arg(long, value_name = "N", conflicts_with = "file_size")]
    pub per_file: Option<u64>,

    /// How large a file is, at least, instead of --per-file.
    #[arg(long, value_name = "SIZE")]
    pub file_size: Option<Bytes>,

    /// The seed of all random numbers. A run with the same `seed` makes up the same samples for itself.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// How many steps the sequences have, from the fewest to the most. A step takes 96 bytes.
    #[arg(long, value_name = "MIN..MAX", default_value = STEPS, value_parser = steps)]
    pub steps: RangeInclusive<u64>,

    /// What the files are: batches of torch.save, or pickles (one sample in each, or a list) with a scores.csv beside
    /// them.
    #[arg(long, value_name = "FORMAT", default_value = "pt")]
    pub format: Format,

    /// Print what was written as a line of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the help would repeat what stands there, and the names say it")]
pub enum Format {
    Pt,
    Pkl,
    #[value(name = "pkl.gz")]
    PklGz,
}

impl Format {
    /// As it is typed, and as files end.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().expect("none is hidden").get_name().to_owned()
    }
}

fn steps(text: &str) -> Result<RangeInclusive<u64>, String> {
    let ends = text.split_once("..").map(|(least, most)| (least.parse(), most.trim_start_matches('=').parse()));
    match ends {
        Some((Ok(least), Ok(most))) if 1 <= least && least <= most && most <= MOST_STEPS => Ok(least..=most),
        Some((Ok::<u64, _>(_), Ok::<u64, _>(_))) => Err(format!("must go from at least 1 to at most {MOST_STEPS}")),
        _ => Err(format!("must be two numbers, such as {STEPS}")),
    }
}

/// Write made-up films: folders of PNG frames, as `data.source: frames` reads them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide generate deblur --out data/films --scenes 8 --frames 96 --frame-size 1280x720
  lowtide generate deblur --out data/pairs --layout pairs --frames 24
  lowtide train deblur --set data.source=frames --set data.folder=data/films")]
pub struct FilmArgs {
    /// The folder: a new one or an empty one.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,

    /// How many scenes there are; the last one is evaluated on, where nothing else is said.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub scenes: u32,

    /// How many frames a scene has.
    #[arg(long, value_name = "N", default_value_t = 96)]
    pub frames: u32,

    /// Columns and rows of a frame.
    #[arg(long, value_name = "WxH", default_value = "640x360", value_parser = frame_size)]
    pub frame_size: [u32; 2],

    /// What a scene holds: sharp frames, one for every moment, of which blur is made; or pairs of a blurred and a sharp
    /// one.
    #[arg(long, value_name = "LAYOUT", default_value = "sharp")]
    pub layout: Layout,

    /// How many moments an exposure has.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub moments: u32,

    /// How many pixels something moves in an exposure, at most.
    #[arg(long, value_name = "PIXELS", default_value_t = 12.0)]
    pub speed: f32,

    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print what was written as a line of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What a scene holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the help would repeat what stands there, and the option says it")]
pub enum Layout {
    Sharp,
    Pairs,
}

fn frame_size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once('x').and_then(|(width, height)| Some([height.parse().ok()?, width.parse().ok()?]));
    sides
        .filter(|sides: &[u32; 2]| sides.iter().all(|side| (1..=MOST_SIDE).contains(side)))
        .ok_or_else(|| format!("expected columns x rows, each from 1 to {MOST_SIDE}, such as 1280x720"))
}
