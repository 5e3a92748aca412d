//! Writing into a file that must stay the one it is.
//!
//! `explain --write` replaces a file by a new one, or writes into it where a new one would not be the same: it has
//! several names, an owner we cannot give, or attributes. Then what it was is beside it meanwhile, as `NAME.before`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::DiskError;
use crate::write::write;

/// What the name of a copy ends with.
const ENDING: &str = ".before";

/// Writes a file in its place: its other names, its owner and its attributes stay, which a file under a new name has not.
/// The open file is given back.
///
/// What it held is beside it meanwhile, as `NAME.before`, and is put back where the write fails. A kill in between leaves that
/// copy there; as long as it is there nothing is written again.
///
/// # Errors
///
/// The system refuses, or a copy is there already.
pub fn rewrite(path: &Path, bytes: &[u8]) -> Result<File, DiskError> {
    with_copy(path, |file| file.write_all(bytes).and_then(|()| file.set_len(bytes.len() as u64)))
}

fn with_copy(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<File, DiskError> {
    let mut file = File::options().read(true).write(true).open(path).map_err(DiskError::at(path))?;
    let mut old = Vec::new();
    file.read_to_end(&mut old).and_then(|_| file.rewind()).map_err(DiskError::at(path))?;
    let copy = copy_path(path);
    if fs::symlink_metadata(&copy).is_ok() {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "a copy of what an interrupted write was to replace");
        return Err(DiskError { path: copy, source });
    }
    write(&copy, &old)?;
    if let Err(error) = fill(&mut file).and_then(|()| file.sync_all()) {
        return Err(put_back(&mut file, &old).map_or_else(
            |_| {
                let text = format!("{error}; what the file was is in {}", copy.display());
                DiskError::at(path)(io::Error::new(error.kind(), text))
            },
            |()| {
                let _ = fs::remove_file(&copy);
                DiskError::at(path)(io::Error::new(error.kind(), error.to_string()))
            },
        ));
    }
    fs::remove_file(&copy).map_err(DiskError::at(&copy))?;
    Ok(file)
}

fn put_back(file: &mut File, old: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(old)?;
    file.set_len(old.len() as u64)?;
    file.sync_all()
}

fn copy_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(ENDING);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "the old text").unwrap();
        let fails = |file: &mut File| {
            assert_eq!(fs::read_to_string(folder.path().join("file.before")).unwrap(), "the old text");
            file.write_all(b"something that is longer than it was").and(Err(io::ErrorKind::StorageFull.into()))
        };
        let error = with_copy(&path, fails).unwrap_err();
        assert_eq!((error.path.as_path(), error.source.kind()), (path.as_path(), io::ErrorKind::StorageFull));
        assert_eq!(fs::read_to_string(&path).unwrap(), "the old text");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
