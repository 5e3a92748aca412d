//! The folder of a run: which one is free, and a new one.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::KeepError;
use crate::command::checkpoint::BEFORE;
use crate::inside::host_reserve::USES;
use crate::inside::memory_watch::REPORTS;
use lowtide_journal::EVENTS;

/// The name of the file in which whoever keeps a command alive writes its [`Chronicle`](crate::Chronicle).
pub const SUMMARY: &str = "summary.json";
/// What the names of all else begin with that a run has for each of its starts.
const BEGINNINGS: [&str; 5] = ["start-", "retry-", "resume-", "inside-", BEFORE];

/// Whether a folder has nothing that a run would write over.
///
/// # Errors
///
/// It has: another run's.
pub fn is_free(folder: &Path) -> Result<(), KeepError> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    match entries.filter(|entry| is_of_a_run(&entry.file_name())).map(|entry| entry.path()).min() {
        Some(path) => Err(KeepError::file(&path)(io::Error::new(io::ErrorKind::AlreadyExists, "another run wrote it"))),
        None => Ok(()),
    }
}

/// Whether what has this name in the folder of a run is the run's.
pub(crate) fn is_of_a_run(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    [SUMMARY, EVENTS, REPORTS, USES].contains(&&*name) || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

/// Whether a folder with these names in it is that of a run: it has the log of a start and its events.
pub(crate) fn is_run_folder(names: impl Iterator<Item = OsString>) -> bool {
    let (mut has_log, mut has_events) = (false, false);
    for name in names {
        let name = name.to_string_lossy();
        has_log |= name.starts_with("start-") && name.ends_with(".log");
        has_events |= name == EVENTS;
    }
    has_log && has_events
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
