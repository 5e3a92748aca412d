//! The files that are packed.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use serde::{Deserialize, Serialize};

use super::Error;
use crate::DataError;
use crate::file_stamp::FileStamp;
use crate::set::Folder;

/// A file that is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// As the user names it.
    pub(super) path: PathBuf,
    pub(super) stamp: SourceStamp,
}

/// What tells a file from another, and from what it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceStamp {
    /// Its path without links and dots.
    pub(super) path: String,
    pub(super) bytes: Bytes,
    /// In nanoseconds since 1970.
    pub(super) modified: i64,
}

impl Source {
    pub(super) fn of(path: &Path) -> Result<Self, DataError> {
        let failed = DataError::io(path);
        let real = path.canonicalize().map_err(&failed)?;
        let stamp = FileStamp::new(&fs::metadata(&real).map_err(&failed)?, 0);
        let stamp =
            SourceStamp { path: real.to_string_lossy().into_owned(), bytes: stamp.bytes, modified: stamp.modified };
        Ok(Self { path: path.to_owned(), stamp })
    }

    /// An error where the file is not what it was any more.
    pub(super) fn check(&self) -> Result<(), Error> {
        if Source::of(&self.path)?.stamp == self.stamp {
            return Ok(());
        }
        Err(Error::Changed { file: self.path.clone() })
    }
}

/// All files, in the order in which they are named; those of a folder by name.
pub(super) fn find(inputs: &[PathBuf]) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            sources.push(Source::of(input)?);
            continue;
        }
        let files = Folder::list(input)?.files;
        if files.is_empty() {
            return Err(Error::NoFiles { folder: input.clone() });
        }
        for file in files {
            sources.push(Source::of(&file)?);
        }
    }
    let mut seen = HashSet::new();
    match sources.iter().find(|source| !seen.insert(&source.stamp.path)) {
        Some(source) => Err(Error::Twice { file: source.path.clone() }),
        None => Ok(sources),
    }
}
