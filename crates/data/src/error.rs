//! Why data cannot be read.

use std::io;
use std::path::{Path, PathBuf};

use lowtide_disk::DiskError;
use lowtide_tensorfile::{Place, TensorFileError};
use thiserror::Error;

use crate::shard;

/// Data that is broken, cut short, or not what it should be; each text names the file, the place and the problem.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file or a folder cannot be read.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// The columns of a batch file do not belong to the same samples.
    #[error("{}: {problem}", file.display())]
    Columns {
        /// The file.
        file: PathBuf,
        /// Which columns disagree, and how.
        problem: String,
    },
    /// A table is not as it must be.
    #[error("{}: line {line}, column `{}`: {problem}", file.display(), column.escape_debug())]
    Table {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The column, by its name.
        column: String,
        /// What is wrong.
        problem: String,
    },
    /// The saved index of a folder tells of other samples than its files hold.
    #[error(
        "{}: sample {sample} has another {what} than the index of its folder says: remove {}, and it is made anew",
        file.display(),
        index.display()
    )]
    Index {
        /// The file.
        file: PathBuf,
        /// The index.
        index: PathBuf,
        /// The first sample of the file that is another.
        sample: u64,
        /// What differs.
        what: &'static str,
    },
    /// A folder without data files.
    #[error("{}: there are no data files in it", folder.display())]
    NoFiles {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder that is being packed, or was when packing was interrupted.
    #[error("{} is not packed to its end", folder.display())]
    Unfinished {
        /// The folder.
        folder: PathBuf,
    },
    /// A shard of Lowtide's own cannot be read.
    #[error(transparent)]
    Shard(#[from] shard::Error),
}

impl DataError {
    /// Makes an error of what the system said about a file or a folder.
    pub(crate) fn io(file: &Path) -> impl Fn(io::Error) -> Self {
        move |source| TensorFileError::Io { file: file.to_owned(), place: Place::Whole, source }.into()
    }

    /// Says what is wrong with a file or a folder.
    pub(crate) fn malformed(file: &Path, problem: impl Into<String>) -> Self {
        TensorFileError::Malformed { file: file.to_owned(), place: Place::Whole, problem: problem.into() }.into()
    }

    /// Of a file that is not the one that was looked at.
    pub(crate) fn changed(file: &Path) -> Self {
        Self::malformed(file, "it has changed since the run began")
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::File(error) => error.hint(),
            Self::Columns { .. } => Some("each list of a batch file holds one element for each sample"),
            Self::NoFiles { .. } => Some("name the folder that they are in: those within are not looked into"),
            Self::Unfinished { .. } => {
                Some("wait for `lowtide pack`, or give its command again where it was interrupted")
            }
            Self::Shard(shard::Error::Version { .. }) => Some("pack the data again"),
            Self::Shard(_) => Some("copy or pack the file again"),
            Self::Table { .. } | Self::Index { .. } => None,
        }
    }
}

impl From<DiskError> for DataError {
    fn from(error: DiskError) -> Self {
        TensorFileError::from(error).into()
    }
}
