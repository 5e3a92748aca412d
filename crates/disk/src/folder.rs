//! Writing a folder in one call.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::DiskError;
use crate::temporary_name::TemporaryName;

/// Writes a folder as a whole: `fill` is given the folder under its temporary name and need not sync what it writes there.
/// There must be no folder of that name yet, or an empty one. All writers use the same
/// temporary name, so only one may write it at a time; what a killed one left is removed first.
///
/// # Errors
///
/// The system refuses, or `fill` does.
pub fn write_folder<E: From<DiskError>>(path: &Path, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    let name = begin(path).map_err(DiskError::at(path))?;
    fill(name.as_path())?;
    sync_all(name.as_path()).and_then(|()| name.replace()).map_err(DiskError::at(path))?;
    Ok(())
}

fn begin(path: &Path) -> io::Result<TemporaryName> {
    let name = TemporaryName::shared(path)?;
    match fs::remove_dir_all(name.as_path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir(name.as_path())?,
    }
    Ok(name)
}

/// Syncs a folder with all that is in it.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync_all(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    File::open(folder)?.sync_all()
}
