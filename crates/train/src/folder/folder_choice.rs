//! The folder that a run is to use: whether it can, and from what it goes on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lowtide_core::{CheckpointChoice, Numerics, Step};
use lowtide_disk::HeldFolder;
use lowtide_journal::{EVENTS, LineFile};
use lowtide_settings::RunSettings;

use super::checkpoint;
use super::checkpoint_choice::{fallback, find};
use super::checkpoints::{CHECKPOINTS, Checkpoints};
use super::run_files::{CONFIG, SERIES, SUMMARY, config_note, config_text, remove_file, remove_run, settings_text};
use super::run_folder::RunFolder;
use super::schedule::{SCHEDULE, Schedule};
use super::summary::Summary;
use crate::error::{Fallback, FolderProblem, Purpose, Result, TrainError};

/// More bytes than a summary ever has.
const MOST_SUMMARY: u64 = 16 << 20;

/// Whether a run starts anew or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// In a folder that is empty or not there yet.
    New,
    /// From a checkpoint in the folder.
    Resume,
}

/// A folder that a run can use, not yet written to.
#[derive(Debug)]
pub struct FolderChoice {
    path: PathBuf,
    start: Start,
    checkpoint: CheckpointChoice,
}

/// The folder of a run with its files, as it was found.
pub(crate) struct OpenRun {
    pub(crate) folder: RunFolder,
    pub(crate) events: LineFile,
    /// What a person should know of it.
    pub(crate) notes: Vec<String>,
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
        Ok(FolderChoice { path: path.to_owned(), start, checkpoint: CheckpointChoice::Newest })
    }

    /// The same, to go on from another checkpoint than the newest.
    #[must_use]
    pub fn from_checkpoint(self, checkpoint: CheckpointChoice) -> FolderChoice {
        FolderChoice { checkpoint, ..self }
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
        let text = lowtide_disk::read_text(&self.path.join(SUMMARY), MOST_SUMMARY).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether the run begins at its beginning: it is new, or was ended before it had saved or done anything.
    pub(crate) fn is_fresh(&self) -> bool {
        let steps = fs::metadata(self.path.join(SCHEDULE)).map_or(0, |metadata| metadata.len());
        self.start == Start::New || (steps == 0 && Checkpoints::in_run(&self.path).newest().is_none())
    }

    /// What decided the bits of the run in this folder when the checkpoint to go on from was written, where that is known.
    #[must_use]
    pub fn numerics(&self) -> Option<Numerics> {
        let (_, path) = self.checkpoint().ok()?;
        checkpoint::numerics(&path)
    }

    /// The checkpoint to go on from, and the step it was saved after.
    pub(crate) fn checkpoint(&self) -> Result<(Step, PathBuf)> {
        find(self.checkpoint, &Checkpoints::in_run(&self.path))
    }

    /// The newest whole checkpoint before a step.
    pub(crate) fn fallback(&self, step: Step) -> Option<Fallback> {
        fallback(&self.path, step, Purpose::Training)
    }

    /// Makes the folder and opens its files; the run goes on after `step`, when `events.jsonl` had so many bytes. The file of
    /// events comes by itself.
    ///
    /// Where that fails for a new run, what was made is removed again.
    pub(crate) fn open(self, settings: &RunSettings, step: Step, events_bytes: u64) -> Result<OpenRun> {
        let is_new = !self.path.exists();
        let opened = self.hold().and_then(|held| {
            let files = self.open_files(&held, settings, step, events_bytes);
            files.map_err(|error| error.shown_in(&held)).map(|files| (held, files))
        });
        let is_anothers = matches!(opened, Err(TrainError::Folder { .. }));
        if opened.is_err() && self.start == Start::New && !is_anothers {
            remove_run(&self.path, is_new);
        }
        let (held, (schedule, events, notes)) = opened?;
        let folder = RunFolder::new(held, schedule, config_text(settings), is_new);
        Ok(OpenRun { folder, events, notes })
    }

    /// Makes the folder of a new run. That of one that goes on is there, or it was moved since it was looked at.
    fn hold(&self) -> Result<HeldFolder> {
        if self.start == Start::New {
            fs::create_dir_all(&self.path).map_err(TrainError::at(&self.path))?;
        }
        HeldFolder::open(&self.path).map_err(TrainError::at(&self.path))
    }

    /// The files of the schedule and of events, and what was found in them.
    fn open_files(
        &self,
        held: &HeldFolder,
        settings: &RunSettings,
        step: Step,
        events_bytes: u64,
    ) -> Result<(LineFile, LineFile, Vec<String>)> {
        let way = held.way();
        let checkpoints = Checkpoints::in_run(way);
        checkpoints.make()?;
        let mut events = LineFile::open(&way.join(EVENTS))?;
        let refuse = |problem| Err(TrainError::Folder { path: self.path.clone(), problem });
        // Nothing that is there is changed before it is ours.
        if events.is_anothers() {
            return refuse(FolderProblem::InUse);
        }
        if self.start == Start::New && way.join(CONFIG).exists() {
            return refuse(FolderProblem::HasRun);
        }
        let mut notes = events.check()?;
        if events.bytes() < events_bytes {
            let (now, then) = (events.bytes(), events_bytes);
            notes
                .push(format!("{EVENTS} has {now} bytes, and {then} were there after step {step}: events are missing"));
        }
        self.sweep(way)?;
        checkpoints.sweep()?;
        notes.extend(checkpoints.set_aside_after(step)?);
        if let Err(error) = checkpoints.best() {
            notes.push(format!("{}: which checkpoint is the best is not known", error.shown_in(held)));
        }
        let schedule = way.join(SCHEDULE);
        notes.extend(Schedule::cut(&schedule, step)?);
        remove_file(&way.join(SUMMARY))?;
        notes.extend(config_note(way));
        lowtide_disk::write(&way.join(CONFIG), config_text(settings).as_bytes())?;
        Ok((LineFile::open(&schedule)?, events, notes))
    }

    /// Removes what a kill left of files that were being written.
    fn sweep(&self, way: &Path) -> Result<()> {
        for entry in fs::read_dir(way).map_err(TrainError::at(way))?.flatten() {
            let name = entry.file_name();
            let leftover = name.to_str().and_then(lowtide_disk::leftover_of);
            if leftover.is_some_and(|file| [CONFIG, SCHEDULE, SUMMARY].contains(&file)) {
                remove_file(&entry.path())?;
            }
        }
        Ok(())
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
    let is_blank =
        |name| fs::metadata(path.join(name)).map_or(true, |metadata| metadata.is_file() && metadata.len() == 0);
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
