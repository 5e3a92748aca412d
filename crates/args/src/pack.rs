//! What `lowtide pack` takes.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use lowtide_core::Bytes;

/// Pack data files into shards, which are read faster and under any memory limit.
///
/// Reads what `lowtide data` reads, and writes shards (00000.shard, ...) with a checksum for every sample.
/// Interrupted in whatever way, the same command goes on behind the last whole shard and ends with the same bytes. A
/// folder that is not finished cannot be taken for a data set.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide pack data/train --out packed                all data files of a folder
  lowtide pack traces/*.pkl.gz --scores scores.csv --out packed
  lowtide pack data/train --out packed --compress=9   smaller, and slower to read
  lowtide pack data/train --out packed --verify       compare with the sources, now or later

Exit codes:
  0    packed
  2    bad input or a full disk; what is whole stays
  130  interrupted; what is whole stays")]
pub struct PackArgs {
    /// Data files, and folders of them, in the order in which their samples shall stand.
    #[arg(value_name = "SRC", required = true)]
    pub sources: Vec<PathBuf>,

    /// The folder for the shards: a new one, an empty one, or one that was begun by the same command.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,

    /// A table with the columns `id` and `score`; each sample gets its score as the field `scores`.
    #[arg(long, value_name = "FILE.csv", value_hint = ValueHint::FilePath)]
    pub scores: Option<PathBuf>,

    /// Pack samples that have no score, and pass over scores that have no sample.
    #[arg(long, requires = "scores")]
    pub allow_missing: bool,

    /// A shard ends with the sample that brings it to this size.
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = shard_size)]
    pub shard_size: Bytes,

    /// Compress every sample with zstd, at level 3 or at this one.
    #[arg(
        long,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "3",
        value_parser = clap::value_parser!(i32).range(1..=22)
    )]
    pub compress: Option<i32>,

    /// Read all shards and sources again in the end and compare every sample.
    #[arg(long)]
    pub verify: bool,

    /// Leave out files that are damaged or cannot be read.
    #[arg(long)]
    pub skip_damaged: bool,

    /// What a source may decode to: 256 MiB by default, or 64 times its size on the disk where that is more.
    #[arg(long, value_name = "SIZE")]
    pub decode_limit: Option<Bytes>,

    /// Delete the shards that an earlier command packed into the folder, and begin anew.
    #[arg(long)]
    pub restart: bool,

    /// Print what was packed as JSON.
    #[arg(long)]
    pub json: bool,
}

fn shard_size(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(size) if size.is_zero() => Err("a shard has at least one byte".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}
