//! What the system refused, and of which file.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file or folder that could not be written. Nothing of it is left, and an older one is as it was; only where the very last
/// thing fails, which makes the rename last, the new one is there.
#[derive(Debug, Error)]
#[error("{}: {source}", path.display())]
pub struct DiskError {
    /// Its own name, not the temporary one.
    pub path: PathBuf,
    /// What the system answered.
    pub source: io::Error,
}

impl DiskError {
    /// What the system answered, of a file or folder.
    pub fn at(path: &Path) -> impl Fn(io::Error) -> DiskError {
        move |source| DiskError { path: path.to_owned(), source }
    }
}
