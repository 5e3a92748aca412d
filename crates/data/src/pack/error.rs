//! Why packing ends early.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_disk::DiskError;
use lowtide_tensorfile::TensorFileError;
use thiserror::Error as ThisError;

use crate::samples::Scores;
use crate::{DataError, shard};

/// Ids that are named.
pub(super) const EXAMPLES: usize = 3;

/// Packing that cannot begin, go on or be believed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A source, or the table of scores, cannot be read.
    #[error(transparent)]
    Source(#[from] DataError),
    /// A shard cannot be written or read.
    #[error(transparent)]
    Shard(#[from] shard::Error),
    /// The system refused.
    #[error("cannot {action} {file}: {source}", file = file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What was to be done with it.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A folder among the sources has no data files.
    #[error("{}: there are no data files in this folder", folder.display())]
    NoFiles {
        /// The folder.
        folder: PathBuf,
    },
    /// A file is among the sources twice.
    #[error("{} is there twice among the sources", file.display())]
    Twice {
        /// The file.
        file: PathBuf,
    },
    /// No source holds a sample.
    #[error("there are no samples in the sources")]
    NoSamples,
    /// The folder holds something that packing did not write.
    #[error("{} is not empty and not a folder of pack: there is `{name}` in it", folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// One of the things in it.
        name: String,
    },
    /// A shard in the folder is none of those that were packed.
    #[error("{} was not written by pack", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The folder was begun with something else.
    #[error("{} was begun with {difference}", folder.display())]
    Differs {
        /// The folder.
        folder: PathBuf,
        /// In what.
        difference: Difference,
    },
    /// Another process packs into the folder.
    #[error("{} is being packed by another process", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// The notes of an earlier run make no sense.
    #[error("{} makes no sense: {problem}", file.display())]
    Notes {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A source is not what it was when packing began.
    #[error("{} was changed while it was being packed", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// Samples and scores do not belong together.
    #[error("{}: {gaps}", file.display())]
    Unmatched {
        /// The table of scores.
        file: PathBuf,
        /// How many, and some of them.
        gaps: Box<ScoreGaps>,
    },
    /// A sample that is to get a score has one.
    #[error("{}: sample {sample} has a field `scores` of its own", file.display())]
    OwnScore {
        /// The file of the sample.
        file: PathBuf,
        /// Its place there.
        sample: u64,
    },
    /// What was packed is not what the source holds.
    #[error("record {record} of {} is not sample {sample} of {}: {problem}", shard.display(), file.display())]
    Mismatch {
        /// The shard.
        shard: PathBuf,
        /// The record in it.
        record: u64,
        /// The source.
        file: PathBuf,
        /// The sample in it.
        sample: u64,
        /// In what they differ.
        problem: String,
    },
    /// The shards hold more or fewer samples than the sources.
    #[error("{} holds {packed} samples, and the sources hold {there}", folder.display())]
    Count {
        /// The folder.
        folder: PathBuf,
        /// Samples in the shards.
        packed: u64,
        /// Samples in the sources.
        there: u64,
    },
    /// More shards than there are names for.
    #[error("{} would have more than {most} shards", folder.display())]
    TooMany {
        /// The folder.
        folder: PathBuf,
        /// The most that there can be.
        most: usize,
    },
    /// Whoever watches asked to stop; what is whole stays.
    #[error("stopped: {shards} shards with {samples} samples are whole in {}", folder.display())]
    Stopped {
        /// The folder.
        folder: PathBuf,
        /// Shards that are whole.
        shards: u64,
        /// Their samples.
        samples: u64,
    },
}

/// In what a folder differs from what is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// An option: its name, what it was, what it is.
    Option(&'static str, String, String),
    /// A source that was not there.
    Added(String),
    /// A source that is not named any more.
    Removed(String),
    /// A source of another size or time: its path, the size it had, the size it has.
    Changed(String, Bytes, Bytes),
    /// The same sources in another order.
    Order,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name, was, is) => write!(formatter, "{name} {was}, and {is} is asked for"),
            Self::Added(path) => write!(formatter, "other sources: {path} was not among them"),
            Self::Removed(path) => write!(formatter, "other sources: {path} was among them"),
            Self::Changed(path, was, is) if was == is => {
                write!(formatter, "other sources: {path} was written to since")
            }
            Self::Changed(path, was, is) => {
                write!(formatter, "other sources: {path} had {} bytes and has {}", was.get(), is.get())
            }
            Self::Order => formatter.write_str("the same sources in another order"),
        }
    }
}

/// Samples and scores that do not find each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScoreGaps {
    /// Samples without an id.
    pub without_id: u64,
    /// Samples whose id has no score.
    pub without_score: u64,
    /// The first of their ids.
    pub unscored_ids: Vec<String>,
    /// Scores whose id no sample has.
    pub without_sample: u64,
    /// Some of these ids.
    pub unused_ids: Vec<String>,
}

impl ScoreGaps {
    /// Whether all find each other.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.without_id == 0 && self.without_score == 0 && self.without_sample == 0
    }

    /// Counts the id of a sample, and takes it into those that are `used`.
    pub(super) fn see(&mut self, id: Option<String>, scores: &Scores, used: &mut HashSet<String>) {
        match id {
            None => self.without_id += 1,
            Some(id) if scores.get(&id).is_some() => _ = used.insert(id),
            Some(id) => {
                self.without_score += 1;
                if self.unscored_ids.len() < EXAMPLES {
                    self.unscored_ids.push(id);
                }
            }
        }
    }

    /// Counts the scores whose id is not used; the first of these by name are named.
    pub(super) fn see_unused(&mut self, scores: &Scores, is_used: impl Fn(&str) -> bool) {
        let mut unused: Vec<&str> = scores.ids().filter(|id| !is_used(id)).collect();
        unused.sort_unstable();
        self.without_sample = unused.len() as u64;
        self.unused_ids = unused.iter().take(EXAMPLES).map(|id| (*id).to_owned()).collect();
    }
}

impl fmt::Display for ScoreGaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let of = |number: u64, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
        if self.without_id > 0 {
            parts.push(of(self.without_id, "sample has no id", "samples have no id"));
        }
        if self.without_score > 0 {
            let text = of(self.without_score, "sample has no score", "samples have no score");
            parts.push(format!("{text} ({})", some(&self.unscored_ids, self.without_score)));
        }
        if self.without_sample > 0 {
            let text = of(self.without_sample, "score has no sample", "scores have no sample");
            parts.push(format!("{text} ({})", some(&self.unused_ids, self.without_sample)));
        }
        formatter.write_str(&parts.join("; "))
    }
}

fn some(ids: &[String], all: u64) -> String {
    let named: Vec<String> = ids.iter().map(|id| format!("`{:.80}`", id.escape_debug().to_string())).collect();
    let more = if all > ids.len() as u64 { ", ..." } else { "" };
    format!("{}{more}", named.join(", "))
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        Self::Io { file: error.path, action: "write", source: error.source }
    }
}

impl Error {
    /// Makes an error of what the system said about `file`.
    pub(super) fn io(file: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { file: file.to_path_buf(), action, source }
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        if self.is_disk_full() {
            return Some("make room and give the same command again: it goes on from the last whole shard");
        }
        match self {
            Self::Source(
                DataError::File(
                    TensorFileError::CutShort { .. }
                    | TensorFileError::Checksum { .. }
                    | TensorFileError::Malformed { .. },
                )
                | DataError::Columns { .. },
            ) => Some("put the file right and give the same command again, or leave it out with --skip-damaged"),
            Self::Source(error) => error.hint(),
            Self::NoFiles { .. } => {
                Some("name the files themselves, or the folder that they are in: those within are not looked into")
            }
            Self::NotOurs { .. } => Some("name a new folder, or an empty one"),
            Self::Foreign { .. } => Some("move it to another folder: all shards of a folder are one data set"),
            Self::Differs { .. } => Some(
                "the command as it was goes on; --restart deletes the shards that were packed there and begins anew",
            ),
            Self::Busy { .. } => Some("wait for it, or name another folder"),
            Self::Notes { .. } => Some("--restart deletes the shards that were packed there and begins anew"),
            Self::Changed { .. } => Some("once nobody writes to it, begin anew with --restart"),
            Self::Unmatched { .. } => Some("--allow-missing packs what there is"),
            Self::OwnScore { .. } => Some("leave --scores out, or save the samples without that field"),
            Self::Mismatch { .. } | Self::Count { .. } => Some("were the sources changed? --restart packs them anew"),
            Self::TooMany { .. } => Some("make them larger: --shard-size"),
            Self::Stopped { .. } => Some("give the same command again: it goes on from there"),
            _ => None,
        }
    }

    /// Whether there was no room on the disk, or no leave to use more of it.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let source = match self {
            Self::Io { source, .. }
            | Self::Shard(shard::Error::Io { source, .. })
            | Self::Source(
                DataError::File(TensorFileError::Io { source, .. }) | DataError::Shard(shard::Error::Io { source, .. }),
            ) => source,
            _ => return false,
        };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
    }
}
