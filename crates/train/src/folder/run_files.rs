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

use lowtide_journal::EVENTS;
use lowtide_settings::{FILE_LIMIT, RunSettings, to_yaml};
use serde::Serialize;

use super::checkpoints::CHECKPOINTS;
use super::schedule::SCHEDULE;
use crate::error::{Result, TrainError};

pub(super) const CONFIG: &str = "config.yaml";
pub(super) const SUMMARY: &str = "summary.json";
/// Marks the folder of several runs.
pub(super) const SERIES: &str = ".series";

/// How the last line of `config.yaml` begins, a comment with the checksum of the lines before it.
const CONFIG_SUM: &str = "# crc32c ";

/// What is written into `config.yaml`.
pub(super) fn config_text(settings: &RunSettings) -> String {
    let yaml = to_yaml(settings);
    format!("{yaml}{}", config_sum(&yaml))
}

/// What a person should know of a `config.yaml` that is not as it was written. It is used as it stands: people may edit it.
pub(super) fn config_note(folder: &Path) -> Option<String> {
    let (_, text) = settings_text(folder).ok()?;
    let last = text.trim_end_matches('\n').rfind('\n').map_or(0, |end| end + 1);
    let (yaml, sum) = text.split_at(last);
    // Those of older runs have no comment.
    let is_changed = sum.starts_with('#') && sum != config_sum(yaml);
    is_changed.then(|| format!("{CONFIG} was changed since it was written, by somebody or by damage"))
}

fn config_sum(yaml: &str) -> String {
    format!("{CONFIG_SUM}{:08x}\n", crc32c::crc32c(yaml.as_bytes()))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_configuration_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CONFIG);
        let text = config_text(&RunSettings::default());
        fs::write(&path, &text).unwrap();
        assert_eq!(config_note(folder.path()), None);
        fs::write(&path, text.replacen("seed: 1", "seed: 3", 1)).unwrap();
        let note = "config.yaml was changed since it was written, by somebody or by damage";
        assert_eq!(config_note(folder.path()).as_deref(), Some(note));
        fs::write(&path, to_yaml(&RunSettings::default())).unwrap();
        assert_eq!(config_note(folder.path()), None, "an older run");
    }
}
