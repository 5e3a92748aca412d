//! The files in the folder of a run.
//!
//! | file | what |
//! | --- | --- |
//! | `config.yaml` | the settings as resolved |
//! | `events.jsonl` | one [`lowtide_core::Record`] a line, as it happens; locked while the run is under way; beyond 64 MiB several steps are one |
//! | `schedule.jsonl` | how each step was computed |
//! | `checkpoints/STEP/` | the state after that step |
//! | `summary.json` | what came of it, written last; not there while the run is under way |

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lowtide_settings::FILE_LIMIT;
use serde::Serialize;

use super::checkpoints::CHECKPOINTS;
use super::schedule::SCHEDULE;
use crate::error::{Result, TrainError};

pub(super) const CONFIG: &str = "config.yaml";
pub(super) const EVENTS: &str = "events.jsonl";
pub(super) const SUMMARY: &str = "summary.json";
/// Marks the folder of several runs.
pub(super) const SERIES: &str = ".series";

/// The settings of the run in a folder, as text, and where that is.
pub(super) fn settings_text(folder: &Path) -> Result<(PathBuf, String)> {
    let path = folder.join(CONFIG);
    let text = lowtide_disk::read_text(&path, FILE_LIMIT).map_err(TrainError::at(&path))?;
    Ok((path, text))
}

/// Writes `summary.json` into the folder of a run, or of several.
pub(super) fn write_summary(folder: &Path, summary: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(summary).expect("plain numbers and texts") + "\n";
    Ok(lowtide_disk::write(&folder.join(SUMMARY), text.as_bytes())?)
}

/// Removes a run's files, and its folder where that was made for it. Best effort: the error that led here is what the
/// caller hears.
pub(super) fn remove_run(folder: &Path, is_new: bool) {
    for name in [CONFIG, EVENTS, SCHEDULE] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir_all(folder.join(CHECKPOINTS));
    if is_new {
        let _ = fs::remove_dir(folder);
    }
}

/// Removes a file that may not be there.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(TrainError::at(path)(source)),
        _ => Ok(()),
    }
}
