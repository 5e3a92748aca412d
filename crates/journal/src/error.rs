//! What can go wrong with a file of lines.

use std::io;
use std::path::{Path, PathBuf};

/// What the system said of a file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct LineFileError {
    /// The file.
    pub path: PathBuf,
    /// What it said.
    pub source: io::Error,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, LineFileError>;

impl LineFileError {
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> LineFileError {
        move |source| LineFileError { path: path.to_owned(), source }
    }
}
