//! What is watched: runs or a process.

use std::path::PathBuf;
use std::time::SystemTime;

use lowtide_sensors::{Cause, Reading};
use lowtide_watch::{Board, newest_in};

use super::process_run::run_folder;
use super::sampling::look_at;
use crate::output::{Failure, RUNS};

/// What is to be watched: a process, the folders that were named, or the newest of the usual place; and those folders.
pub(crate) fn open_board(pid: Option<u32>, folders: &[PathBuf]) -> Result<(Board, Vec<PathBuf>), Failure> {
    let folders = match pid {
        // A process that trains is seen best by its run.
        Some(pid) => match checked(pid).map(|()| run_folder(pid))? {
            Some(folder) => vec![folder],
            None => return Ok((Board::of_process(pid, SystemTime::now()), Vec::new())),
        },
        None => chosen(folders)?,
    };
    Ok((Board::open(&folders)?, folders))
}

/// The folders that were asked for, or the newest of the usual place.
fn chosen(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if !folders.is_empty() {
        return Ok(folders.to_vec());
    }
    let newest = newest_in(RUNS.as_ref()).ok_or_else(|| {
        let hint = "name the folder of a run; `lowtide train` says at its end which it is";
        Failure::bad_input(format!("no run is in {RUNS}/ here"), Some(hint.to_owned()))
    })?;
    Ok(vec![newest])
}

/// Whether a process can be watched.
fn checked(pid: u32) -> Result<(), Failure> {
    let Reading::Missing(missing) = look_at(pid).process else { return Ok(()) };
    let (text, hint) = match missing.cause {
        Cause::Ended => {
            (format!("there is no process {pid}"), "`ps aux` lists those that you may see, with their numbers")
        }
        Cause::Denied => (
            format!("process {pid} is another user's, and this one may not see it: {missing}"),
            "start lowtide as that user, or as the administrator",
        ),
        _ => (format!("process {pid} cannot be watched: {missing}"), "/proc must be there and readable"),
    };
    Err(Failure::bad_input(text, Some(hint.to_owned())))
}
