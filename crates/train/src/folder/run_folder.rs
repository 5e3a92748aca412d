//! The folder of a run: where everything about it is written.
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

use lowtide_core::Step;
use lowtide_settings::{RunSettings, to_yaml};
use serde::Serialize;

use super::checkpoints::{CHECKPOINTS, Checkpoints};
use super::schedule::{SCHEDULE, Schedule};
use super::summary::Summary;
use crate::error::{FolderProblem, Result, TrainError};
use crate::line_file::LineFile;

pub(super) const CONFIG: &str = "config.yaml";
const EVENTS: &str = "events.jsonl";
pub(super) const SUMMARY: &str = "summary.json";
/// Marks the folder of several runs.
pub(super) const SERIES: &str = ".series";

/// Whether a run starts anew or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// In a folder that is empty or not there yet.
    New,
    /// From the newest checkpoint in the folder.
    Resume,
}

/// A folder that a run can use, not yet written to.
#[derive(Debug)]
pub struct FolderChoice {
    path: PathBuf,
    start: Start,
}

/// The folder of a run that is under way.
pub(crate) struct RunFolder {
    pub(crate) path: PathBuf,
    /// Takes a [`super::ScheduleLine`] for each step.
    pub(crate) schedule: LineFile,
    /// Whether the folder was not there before.
    is_new: bool,
}

impl FolderChoice {
    /// Looks whether `path` can be used, and leaves nothing behind.
    pub fn look(path: &Path, start: Start) -> Result<FolderChoice> {
        let refuse = |problem| Err(TrainError::Folder { path: path.to_owned(), problem });
        let has_run = path.join(CONFIG).is_file();
        match start {
            _ if path.exists() && !path.is_dir() => return refuse(FolderProblem::IsFile),
            Start::Resume if !has_run => return refuse(FolderProblem::NothingToResume),
            Start::New if has_run => return refuse(FolderProblem::HasRun),
            Start::New if !is_unused(path) => return refuse(FolderProblem::NotEmpty),
            _ => {}
        }
        if let Err(error) = try_writing(path) {
            return refuse(FolderProblem::NotWritable(error.kind()));
        }
        Ok(FolderChoice { path: path.to_owned(), start })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the run starts anew or goes on.
    #[must_use]
    pub fn start(&self) -> Start {
        self.start
    }

    /// The settings that a run in this folder was started with, as text, and where that is.
    pub fn settings_text(&self) -> Result<(PathBuf, String)> {
        settings_text(&self.path)
    }

    /// What came of the run in this folder, where it has ended.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let text = fs::read_to_string(self.path.join(SUMMARY)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether the run begins at its beginning: it is new, or was ended before it had saved or done anything.
    pub(crate) fn is_fresh(&self) -> bool {
        let steps = fs::metadata(self.path.join(SCHEDULE)).map_or(0, |metadata| metadata.len());
        self.start == Start::New || (steps == 0 && Checkpoints::in_run(&self.path).newest().is_none())
    }

    /// The folder's newest checkpoint, and the step it was saved after.
    pub(crate) fn newest_checkpoint(&self) -> Result<(Step, PathBuf)> {
        let checkpoints = Checkpoints::in_run(&self.path);
        checkpoints.newest().ok_or_else(|| TrainError::Checkpoint {
            path: checkpoints.path.clone(),
            problem: "there is no checkpoint to resume from".to_owned(),
        })
    }

    /// Makes the folder and opens its files; the run goes on after `step`. The file of events comes by itself.
    ///
    /// Where that fails for a new run, what was made is removed again.
    pub(crate) fn open(self, settings: &RunSettings, step: Step) -> Result<(RunFolder, LineFile)> {
        let is_new = !self.path.exists();
        let opened = self.open_files(settings, step);
        let is_anothers = matches!(opened, Err(TrainError::Folder { .. }));
        if opened.is_err() && self.start == Start::New && !is_anothers {
            remove_run(&self.path, is_new);
        }
        let (schedule, events) = opened?;
        Ok((RunFolder { path: self.path, schedule, is_new }, events))
    }

    /// The files of the schedule and of events.
    fn open_files(&self, settings: &RunSettings, step: Step) -> Result<(LineFile, LineFile)> {
        let checkpoints = Checkpoints::in_run(&self.path);
        fs::create_dir_all(&checkpoints.path).map_err(TrainError::at(&checkpoints.path))?;
        let events = LineFile::open(&self.path.join(EVENTS))?;
        let refuse = |problem| Err(TrainError::Folder { path: self.path.clone(), problem });
        if events.is_anothers() {
            return refuse(FolderProblem::InUse);
        }
        if self.start == Start::New && self.path.join(CONFIG).exists() {
            return refuse(FolderProblem::HasRun);
        }
        self.sweep()?;
        checkpoints.sweep()?;
        let schedule = self.path.join(SCHEDULE);
        Schedule::cut(&schedule, step)?;
        remove_file(&self.path.join(SUMMARY))?;
        lowtide_disk::write(&self.path.join(CONFIG), to_yaml(settings).as_bytes())?;
        Ok((LineFile::open(&schedule)?, events))
    }

    /// Removes what a kill left of files that were being written.
    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.path).map_err(TrainError::at(&self.path))?.flatten() {
            let name = entry.file_name();
            let leftover = name.to_str().and_then(lowtide_disk::leftover_of);
            if leftover.is_some_and(|file| [CONFIG, SCHEDULE, SUMMARY].contains(&file)) {
                remove_file(&entry.path())?;
            }
        }
        Ok(())
    }
}

impl RunFolder {
    pub(crate) fn summary(&self, summary: &Summary) -> Result<()> {
        write_summary(&self.path, summary)
    }

    /// Removes a run that could not begin.
    pub(crate) fn abandon(&self) {
        remove_run(&self.path, self.is_new);
    }
}

/// The settings of the run in a folder, as text, and where that is.
pub(super) fn settings_text(folder: &Path) -> Result<(PathBuf, String)> {
    let path = folder.join(CONFIG);
    let text = fs::read_to_string(&path).map_err(TrainError::at(&path))?;
    Ok((path, text))
}

/// Writes `summary.json` into the folder of a run, or of several.
pub(super) fn write_summary(folder: &Path, summary: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(summary).expect("plain numbers and texts") + "\n";
    Ok(lowtide_disk::write(&folder.join(SUMMARY), text.as_bytes())?)
}

/// Removes a run's files, and its folder where that was made for it. Best effort: the error that led here is what the
/// caller hears.
fn remove_run(folder: &Path, is_new: bool) {
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

/// Whether nothing is in the folder, or only what a run leaves that was killed while it opened its files.
fn is_unused(path: &Path) -> bool {
    let is_ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        [EVENTS, SCHEDULE, CHECKPOINTS, SERIES].contains(&&*name) || lowtide_disk::leftover_of(&name) == Some(CONFIG)
    };
    let entries: Vec<_> = fs::read_dir(path).into_iter().flatten().flatten().collect();
    let is_blank = |name| fs::metadata(path.join(name)).map_or(true, |metadata| metadata.len() == 0);
    entries.iter().all(is_ours) && is_blank(EVENTS) && is_blank(SCHEDULE) && is_empty(&path.join(CHECKPOINTS))
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Makes a nameless file in the folder, or in the nearest folder above it that is there.
fn try_writing(path: &Path) -> io::Result<()> {
    let there = path.ancestors().find(|folder| !folder.as_os_str().is_empty() && folder.exists());
    let there = there.unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    tempfile::tempfile_in(there).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        FolderChoice::look(&path, Start::New).unwrap();
        assert!(is_empty(folder.path()));
    }

    #[test]
    fn a_folder_is_unused_until_its_first_event() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(CHECKPOINTS)).unwrap();
        fs::write(folder.path().join(EVENTS), "").unwrap();
        assert!(is_unused(folder.path()));
        fs::write(folder.path().join(EVENTS), "{}\n").unwrap();
        assert!(!is_unused(folder.path()));
        fs::remove_file(folder.path().join(EVENTS)).unwrap();
        fs::write(folder.path().join("notes.txt"), "").unwrap();
        assert!(!is_unused(folder.path()));
    }
}
