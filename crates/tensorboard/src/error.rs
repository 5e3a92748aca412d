//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder or the file cannot be made.
    #[error("{}: the event file cannot be made: {error}; the folder must be writable", path.display())]
    Create {
        /// What cannot be made.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The file cannot be written.
    #[error("{}: the event file cannot be written: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}
