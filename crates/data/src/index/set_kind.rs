//! What kind of files a data set consists of.

use std::path::{Path, PathBuf};

use super::FileFacts;
use crate::DataError;
use crate::set::{Folder, OpenOptions, batch_samples, shard_samples};

const SHARD: &str = "shard";

/// What kind of files a data set consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetKind {
    /// Lowtide's own.
    Shards,
    /// Batches of samples, as people have them.
    Batches,
}

impl SetKind {
    /// The data files of a folder, by name, and their kind.
    pub(crate) fn of_folder(folder: &Path) -> Result<(Self, Vec<String>), DataError> {
        let listed = Folder::list(folder)?;
        let kind = match (listed.shards.is_empty(), listed.files.is_empty()) {
            (false, true) => Self::Shards,
            (true, false) => Self::Batches,
            (true, true) => {
                return Err(DataError::NoFiles { folder: folder.to_owned() });
            }
            (false, false) => return Err(mixed(folder)),
        };
        let files = if kind == Self::Shards { listed.shards } else { listed.files };
        let names = files.into_iter().map(|path| match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => Ok(name.to_owned()),
            None => Err(not_utf8(&path)),
        });
        Ok((kind, names.collect::<Result<_, _>>()?))
    }

    /// The same of files from anywhere, with their whole paths as names.
    pub(crate) fn of_files(paths: &[PathBuf]) -> Result<(Self, Vec<String>), DataError> {
        let is_shard = |path: &PathBuf| path.extension().is_some_and(|ending| ending == SHARD);
        let kind = if paths.first().is_some_and(is_shard) { Self::Shards } else { Self::Batches };
        if let Some(path) = paths.iter().find(|path| is_shard(path) != (kind == Self::Shards)) {
            return Err(mixed(path));
        }
        let names = paths.iter().map(|path| path.to_str().map(str::to_owned).ok_or_else(|| not_utf8(path)));
        Ok((kind, names.collect::<Result<_, _>>()?))
    }

    /// Looks at a file; no value is read.
    pub(crate) fn look_at(self, path: &Path, options: OpenOptions) -> Result<FileFacts, DataError> {
        match self {
            Self::Shards => shard_samples::look_at(path, options),
            Self::Batches => batch_samples::look_at(path, options),
        }
    }
}

fn mixed(path: &Path) -> DataError {
    DataError::malformed(
        path,
        "files *.shard and others are mixed, and a data set has one kind: keep them in folders of their own",
    )
}

fn not_utf8(path: &Path) -> DataError {
    DataError::malformed(path, "its name is not UTF-8: give it another")
}
