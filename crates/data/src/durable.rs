//! Giving a file its name so that it lasts.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The name under which a file grows until it is whole.
pub(crate) fn partial_of(path: &Path) -> PathBuf {
    let mut partial = path.to_path_buf().into_os_string();
    partial.push(".partial");
    partial.into()
}

/// Gives a file, which has to be synced, its own name, and syncs the folder: without that a crash may undo the name.
pub(crate) fn name(partial: &Path, path: &Path) -> io::Result<()> {
    fs::rename(partial, path)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
