//! What can be wrong with an index.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

use crate::shard;

/// An index that cannot be made, saved or read.
#[derive(Debug, ThisError)]
pub enum Error {
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
    /// The saved index is of no use; making a new one mends it.
    #[error("{file} is not a usable index: {reason}", file = file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// A file of the data set has a name that is not UTF-8.
    #[error("the name of {file} is not UTF-8", file = file.display())]
    Name {
        /// The file.
        file: PathBuf,
    },
    /// There are no shards in the folder.
    #[error("there are no files *.shard in {folder}", folder = folder.display())]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// A shard cannot be read.
    #[error(transparent)]
    Shard(#[from] shard::Error),
}

impl Error {
    /// Makes an error of what the system said about `file`.
    pub(super) fn io(file: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { file: file.to_path_buf(), action, source }
    }
}
