//! The folder of a run that is under way: where everything about it is written, wherever it is moved to meanwhile.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lowtide_disk::{FolderNews, HeldFolder};
use lowtide_journal::{EVENTS, LineFile};

use super::checkpoints::Checkpoints;
use super::run_files::{CONFIG, remove_run, write_summary};
use super::schedule::SCHEDULE;
use super::summary::Summary;
use crate::error::{Result, TrainError};

/// Between two looks at where it is.
const PAUSE: Duration = Duration::from_secs(1);

/// The folder of a run that is under way.
pub(crate) struct RunFolder {
    held: HeldFolder,
    /// Takes a [`super::ScheduleLine`] for each step.
    pub(crate) schedule: LineFile,
    /// What is in `config.yaml`.
    config: String,
    /// Whether the folder was not there before.
    is_new: bool,
    looked: Instant,
}

/// What became of the folder and its files since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderState {
    /// All is where it was.
    Same,
    /// It is somewhere else, with all that is in it.
    Moved,
    /// It is there, and files of it were deleted.
    Emptied,
    /// It was deleted, or nobody can reach it any more.
    Gone,
}

impl RunFolder {
    pub(super) fn new(held: HeldFolder, schedule: LineFile, config: String, is_new: bool) -> RunFolder {
        RunFolder { held, schedule, config, is_new, looked: Instant::now() }
    }

    /// Where it is, in words for people.
    pub(crate) fn path(&self) -> &Path {
        self.held.path()
    }

    /// The checkpoints, reached wherever the folder is.
    pub(crate) fn checkpoints(&self) -> Checkpoints {
        Checkpoints::in_run(self.held.way())
    }

    /// A file in it as people call it.
    pub(crate) fn shown(&self, path: &Path) -> PathBuf {
        self.held.shown(path)
    }

    /// An error about a file in it, as people call it.
    pub(crate) fn shown_error(&self, error: TrainError) -> TrainError {
        error.shown_in(&self.held)
    }

    pub(crate) fn summary(&self, summary: &Summary) -> Result<()> {
        write_summary(self.held.way(), summary)
    }

    /// Removes a run that could not begin.
    pub(crate) fn abandon(&self) {
        remove_run(self.path(), self.is_new);
    }

    /// Whether it was not looked for in a while.
    pub(crate) fn is_look_due(&self) -> bool {
        self.looked.elapsed() >= PAUSE
    }

    /// Looks where it is and whether its files are there.
    pub(crate) fn look(&mut self, events: &LineFile) -> FolderState {
        self.looked = Instant::now();
        let news = self.held.look();
        let is_whole = !events.is_deleted() && !self.schedule.is_deleted() && self.held.way().join(CONFIG).exists();
        match news {
            FolderNews::Gone => FolderState::Gone,
            _ if !is_whole => FolderState::Emptied,
            FolderNews::Moved => FolderState::Moved,
            FolderNews::Same => FolderState::Same,
        }
    }

    /// Writes again what was deleted: into the folder where it is still there, else into a new one beside it. What was in
    /// files of lines is not lost, for they are open. Gives the new file of events, where there is one.
    pub(crate) fn restore(&mut self, state: FolderState, events: &LineFile) -> Result<Option<LineFile>> {
        if state == FolderState::Gone {
            self.held = make_beside(self.held.path())?;
        }
        let is_lost = |file: &LineFile| state == FolderState::Gone || file.is_deleted();
        let way = self.held.way().to_owned();
        let copied = |file: &LineFile, name: &str| {
            let path = way.join(name);
            // Somebody else's, who put it in the place of ours.
            let _ = fs::remove_file(&path);
            file.copied_to(&path)
        };
        self.checkpoints().make()?;
        lowtide_disk::write(&way.join(CONFIG), self.config.as_bytes())?;
        if is_lost(&self.schedule) {
            self.schedule = copied(&self.schedule, SCHEDULE)?;
        }
        if !is_lost(events) {
            return Ok(None);
        }
        let events = copied(events, EVENTS)?;
        // Nobody else knows of it yet, so nobody has locked it.
        let _ = events.is_anothers();
        Ok(Some(events))
    }
}

/// Makes a folder beside one that is gone, or where files may be put that nobody has a place for.
fn make_beside(gone: &Path) -> Result<HeldFolder> {
    let beside = beside(gone);
    let elsewhere = env::temp_dir().join(beside.file_name().unwrap_or_default());
    let make = |path: &Path| {
        let names = (1..).map(|number| match number {
            1 => path.to_owned(),
            number => path.with_file_name(format!("{}-{number}", path.file_name().unwrap_or_default().display())),
        });
        for name in names {
            match fs::create_dir(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.and_then(|()| HeldFolder::open(&name)),
            }
        }
        unreachable!("there are enough numbers")
    };
    make(&beside).or_else(|_| make(&elsewhere)).map_err(TrainError::at(&beside))
}

/// The name for a folder in place of one that is gone: `NAME-rescued`, where the nearest folder above it is that is there.
fn beside(gone: &Path) -> PathBuf {
    let above = gone.ancestors().skip(1).find(|folder| folder.as_os_str().is_empty() || folder.is_dir());
    let above = above.unwrap_or(Path::new(""));
    let inside = gone.strip_prefix(above).unwrap_or(gone);
    let parts: Vec<_> = inside.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    above.join(format!("{}-rescued", parts.join("-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_gone_has_another_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        assert_eq!(beside(&top.join("run")), top.join("run-rescued"));
        assert_eq!(beside(&top.join("series/run")), top.join("series-run-rescued"));
        assert_eq!(beside(Path::new("run")), Path::new("run-rescued"));
        assert_eq!(make_beside(&top.join("run")).unwrap().path(), top.join("run-rescued"));
        assert_eq!(make_beside(&top.join("run")).unwrap().path(), top.join("run-rescued-2"));
    }
}
