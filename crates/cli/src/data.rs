//! `lowtide data`: what data files hold.

mod listing;
mod survey;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::output::report;

/// Look into data files: a file's tensors, or the samples of a folder.
///
/// Reads .pt, .pth, .ckpt, .npy, .npz, .safetensors, .pkl and .pkl.gz; a file's first bytes tell its format. Nothing in
/// a file is executed, and the values stay in it unless --sums or --json asks for them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide data batch_0000.pt              every tensor: path, type, shape, bytes
  lowtide data batch_0000.pt --sums       ... and the sum of its values; finds flipped bytes
  lowtide data data/train                 files, samples, sizes and fields of a folder
  lowtide data data/train --sums          ... after every value was read

Exit codes:
  0    listed
  2    bad input: something is missing, damaged, cut short or refused")]
pub(crate) struct DataArgs {
    /// A data file, or a folder of them. Folders within a folder are not looked into.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,

    /// Print JSON: for a file the list of its tensors with their sums, for a folder one object.
    ///
    /// A sum is null for complex numbers and where it is no finite number.
    #[arg(long)]
    json: bool,

    /// Read every value, which verifies the checksums, and add up those of each tensor.
    #[arg(long)]
    sums: bool,
}

pub(crate) fn run(args: &DataArgs) -> ExitCode {
    report(if args.path.is_dir() { survey::survey(args) } else { listing::list(args) })
}
