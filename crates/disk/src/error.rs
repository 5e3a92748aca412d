//! What the system refused, and of which file.

use std::path::{Path, PathBuf};
use std::{error, fmt, io};

/// A file or folder that could not be written. Nothing of it is left, and an older one is as it was; only where the very last
/// thing fails, which makes the rename last, the new one is there.
#[derive(Debug)]
pub struct DiskError {
    /// Its own name, not the temporary one.
    pub path: PathBuf,
    /// What the system answered.
    pub source: io::Error,
}

impl DiskError {
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> DiskError {
        move |source| DiskError { path: path.to_owned(), source }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.source)
    }
}

impl error::Error for DiskError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}
