//! What `lowtide replay` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lowtide_core::Bytes;

/// The largest size that is predicted.
const MOST_SIZE: u64 = 1 << 32;

/// A snapshot and the size it was recorded at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizedFile {
    /// The size.
    pub size: u64,
    /// The snapshot.
    pub file: PathBuf,
}

fn sized_file(text: &str) -> Result<SizedFile, String> {
    let parts = text.split_once('=').map(|(size, file)| (size.trim().parse(), file));
    match parts {
        Some((Ok(size), file)) if (1..=MOST_SIZE).contains(&size) && !file.is_empty() => {
            Ok(SizedFile { size, file: PathBuf::from(file) })
        }
        _ => Err("must be a size and a file, such as 4=four.pickle".to_owned()),
    }
}

/// Replay a memory snapshot of PyTorch: where memory went, and what other allocator settings would have held.
///
/// A snapshot is the file of torch.cuda.memory._dump_snapshot, plain or gzipped, after torch.cuda.memory._record_memory_history(), or a
/// recording of `lowtide train --record-memory`. Its
/// requests go through a simulation of PyTorch's caching allocator that is exact to the byte, under the settings it was recorded with and under
/// others. Nothing in the file is executed, and no GPU is needed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide replay snapshot.pickle
  lowtide replay snapshot.pickle.gz --limit 11.69GiB           would it fit on a smaller card?
  lowtide replay snapshot.pickle --conf expandable_segments:True
  lowtide replay snapshot.pickle --svg timeline.svg --html timeline.html
  lowtide replay snapshot.pickle --json
  lowtide replay snapshot.pickle --save snapshot.ltmem         keep it, small
  lowtide replay --at 2=two.pickle --at 4=four.pickle --size 64 --limit 11.69GiB
                                                               would batch 64 fit, and which is the largest?

Exit codes:
  0    replayed
  2    bad input: no snapshot, one without a history, a setting that PyTorch refuses, or snapshots
       of --at that are not of the same script")]
pub struct ReplayArgs {
    /// The snapshot.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "at")]
    pub file: Option<PathBuf>,

    /// A snapshot of the same script at this size (its batch, or what else changes), twice or more, to predict another with --size.
    #[arg(long, value_name = "N=FILE", value_parser = sized_file, requires = "size", conflicts_with = "file")]
    pub at: Vec<SizedFile>,

    /// The size whose peak is predicted from the snapshots of --at.
    #[arg(long, value_name = "N", requires = "at", value_parser = clap::value_parser!(u64).range(1..=MOST_SIZE))]
    pub size: Option<u64>,

    /// Replay under these settings, as PYTORCH_CUDA_ALLOC_CONF has them [default: those it was recorded with].
    #[arg(long, value_name = "SETTINGS")]
    pub conf: Option<String>,

    /// The most that may be reserved, as on a smaller card [default: where memory ran out in the recording, else none].
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<Bytes>,

    /// The GPU whose history is replayed [default: the one with the longest].
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,

    /// The version of PyTorch that is imitated, 2.0 to 2.15. Only 2.11 was verified against a card.
    #[arg(long, value_name = "VERSION", default_value = "2.11")]
    pub torch: String,

    /// Draw the timeline: live memory by size class, what was reserved above it, the limit, and where memory ran out.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "at")]
    pub svg: Option<PathBuf>,

    /// Write the timeline as a page that opens from disk: zoom, and a click on a block for its size, its life and its stack.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "at")]
    pub html: Option<PathBuf>,

    /// Keep what was read as a recording: a small file that this command reads too, at a sixth of a pickle's size or less.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "at")]
    pub save: Option<PathBuf>,

    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}
