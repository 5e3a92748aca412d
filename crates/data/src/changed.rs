//! The error of a file that is not the one that was looked at.

use std::path::Path;

use crate::{DataError, Place};

pub(crate) fn changed(file: &Path) -> DataError {
    let problem = "it has changed since the run began".to_owned();
    DataError::Malformed { file: file.to_owned(), place: Place::Whole, problem }
}
