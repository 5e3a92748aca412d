//! The folder of a run: which one is free, and a new one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::KeepError;
use crate::inside::host_reserve::USES;
use crate::inside::memory_watch::REPORTS;
use lowtide_journal::EVENTS;

/// The name of the file in which whoever keeps a command alive writes its [`Chronicle`](crate::Chronicle).
pub const SUMMARY: &str = "summary.json";

/// Whether a folder has nothing that a run would write over.
///
/// # Errors
///
/// It has: another run's.
pub fn is_free(folder: &Path) -> Result<(), KeepError> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = |name: &str| {
        [SUMMARY, EVENTS, REPORTS, USES].contains(&name)
            || ["start-", "retry-", "resume-", "inside-", "before-"].iter().any(|start| name.starts_with(start))
    };
    let is_ours = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(ours);
    match entries.map(|entry| entry.path()).filter(is_ours).min() {
        Some(path) => Err(KeepError::file(&path)(io::Error::new(io::ErrorKind::AlreadyExists, "another run wrote it"))),
        None => Ok(()),
    }
}

/// Makes a new folder below `parent`: the name with the first number that is free.
///
/// # Errors
///
/// It cannot be made.
pub fn new_folder(parent: &Path, name: &str) -> Result<PathBuf, KeepError> {
    fs::create_dir_all(parent).map_err(KeepError::file(parent))?;
    let mut folders = (1_u32..).map(|number| parent.join(format!("{name}-{number}")));
    let is_new = |folder: PathBuf| match fs::create_dir(&folder) {
        Ok(()) => Some(Ok(folder)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        Err(error) => Some(Err(KeepError::file(&folder)(error))),
    };
    folders.find_map(is_new).unwrap_or_else(|| Err(KeepError::file(parent)(io::ErrorKind::AlreadyExists.into())))
}
