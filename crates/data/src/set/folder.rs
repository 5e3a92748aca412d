//! The data files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::DataError;

/// The name of the file that is in a folder until it is packed.
pub const PACKING: &str = ".packing";

/// How the names of data files end; other files of a folder are passed over.
pub const KNOWN_ENDINGS: [&str; 10] =
    [".pt", ".pth", ".ckpt", ".npy", ".npz", ".safetensors", ".pkl", ".pickle", ".pkl.gz", ".pickle.gz"];

/// What is in a folder; folders within it are not looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// The data files, by name.
    pub files: Vec<PathBuf>,
    /// Lowtide's own shards, by name.
    pub shards: Vec<PathBuf>,
    /// How many other things there are; hidden ones are not counted.
    pub others: u64,
}

impl Folder {
    /// The files whose paths fit a pattern such as `traces/*.pkl*`, by name.
    ///
    /// # Errors
    ///
    /// Where the pattern is none, a folder on the way cannot be read, or no file fits.
    pub fn matching(pattern: &str) -> Result<Vec<PathBuf>, DataError> {
        let refused = |problem: String| DataError::malformed(pattern.as_ref(), problem);
        let paths = glob::glob(pattern).map_err(|error| refused(format!("it is no pattern of files: {error}")))?;
        let mut files = Vec::new();
        for path in paths {
            let path = path.map_err(|error| {
                let folder = error.path().to_owned();
                DataError::io(&folder)(error.into())
            })?;
            if path.is_file() {
                files.push(path);
            }
        }
        if files.is_empty() {
            return Err(refused("no file fits this pattern".to_owned()));
        }
        files.sort();
        Ok(files)
    }

    /// Lists a folder without opening any file.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read.
    pub fn list(path: &Path) -> Result<Self, DataError> {
        let failed = DataError::io(path);
        let mut folder = Self { files: Vec::new(), shards: Vec::new(), others: 0 };
        for entry in fs::read_dir(path).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // A link to a file that is gone stays: whoever opens it hears of it.
            if is_data_file(&name.to_string_lossy()) && !entry.path().is_dir() {
                folder.files.push(entry.path());
            } else if name.as_encoded_bytes().ends_with(b".shard") && !entry.path().is_dir() {
                folder.shards.push(entry.path());
            } else {
                folder.others += 1;
            }
        }
        folder.files.sort();
        folder.shards.sort();
        Ok(folder)
    }
}

/// Whether a folder is being packed, or packing it was interrupted.
#[must_use]
pub fn is_unfinished(folder: &Path) -> bool {
    folder.join(PACKING).exists()
}

/// An error where a folder is not packed to its end: whoever reads it would miss samples.
pub(crate) fn check_finished(folder: &Path) -> Result<(), DataError> {
    if is_unfinished(folder) { Err(DataError::Unfinished { folder: folder.to_owned() }) } else { Ok(()) }
}

fn is_data_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    KNOWN_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["a.pt", "a.PT", "b.pkl.gz", "ünï.npz", "x.safetensors"] {
            assert!(is_data_file(name), "{name}");
        }
        for name in ["pt", "a.gz", "a.csv", "train.bin", "a.pt.partial"] {
            assert!(!is_data_file(name), "{name}");
        }
    }
}
