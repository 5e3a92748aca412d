//! What `lowtide data` takes.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::Args;
use lowtide_core::Bytes;

/// Look into data files: a file's tensors, or the samples of a folder and what a run would read of them.
///
/// Reads .pt, .pth, .ckpt, .npy, .npz, .safetensors, .pkl and .pkl.gz, whose first bytes tell the format, and .shard.
/// Nothing in a file is executed, and the values stay in it unless --sums or --json asks for them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide data batch_0000.pt              every tensor: path, type, shape, bytes
  lowtide data batch_0000.pt --sums       ... and the sum of its values; finds flipped bytes
  lowtide data data/train                 files, samples, sizes and fields of a folder
  lowtide data data/train --sums          ... after every value was read
  lowtide data packed --host-limit 4GiB   what a run in 4 GiB would read, an epoch

Exit codes:
  0    listed
  2    bad input: something is missing, damaged, cut short or refused, or a limit is too small")]
pub struct DataArgs {
    /// A data file, or a folder of them. Folders within a folder are not looked into.
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    /// Print JSON: for a file the list of its tensors with their sums, for a folder one object.
    ///
    /// A sum is null for complex numbers and where it is no finite number.
    #[arg(long)]
    pub json: bool,

    /// Read every value, which verifies the checksums, and add up those of each tensor.
    #[arg(long)]
    pub sums: bool,

    /// What a file may decode to: 256 MiB by default, or 64 times its size on the disk where that is more.
    #[arg(long, value_name = "SIZE")]
    pub decode_limit: Option<Bytes>,

    /// What a run would read.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// The run that is asked about.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Of a folder: what a run whose memory stays below this limit would read in an epoch, and with other limits.
    #[arg(long = "host-limit", alias = "host-line", value_name = "SIZE", conflicts_with = "max_cache_batches")]
    pub host_line: Option<Bytes>,

    /// The same for a cache that holds so many files or shards.
    #[arg(long, value_name = "N")]
    pub max_cache_batches: Option<NonZeroU64>,

    /// Memory that the engine takes before any data is there; a run measures it.
    #[arg(long, value_name = "SIZE", default_value = "350MiB")]
    pub base: Bytes,
}
