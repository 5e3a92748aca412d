//! Why `lowtide generate` ends early.

use std::io;
use std::path::Path;

use lowtide_data::DataError;
use lowtide_tensorfile::TensorFileError;

/// Why a command ends early, and what to do about it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) hint: Option<String>,
}

impl Failure {
    pub(super) fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), hint: None }
    }

    pub(super) fn with_hint(text: String, hint: &str) -> Failure {
        Failure { text, hint: Some(hint.to_owned()) }
    }

    /// What the system said of a file.
    pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::new(format!("{}: {error}", path.display()))
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Failure {
        let hint = match &error {
            DataError::File(TensorFileError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                Some("make room, then run the same command again: the files that are there are whole")
            }
            _ => error.hint(),
        };
        Failure { text: error.to_string(), hint: hint.map(str::to_owned) }
    }
}
