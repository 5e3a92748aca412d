//! The folder of a run: where everything about it is written.
//!
//! | file | what |
//! | --- | --- |
//! | `config.yaml` | the settings as resolved |
//! | `events.jsonl` | one [`Record`] a line, as it happens; locked while the run is under way; beyond 64 MiB several steps are one |
//! | `schedule.jsonl` | how each step was computed |
//! | `checkpoints/STEP/` | the state after that step |
//! | `summary.json` | what came of it, written last; not there while the run is under way |

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use lowtide_core::{Record, Step};
use lowtide_settings::{RunSettings, to_yaml};
use serde::Serialize;

use crate::checkpoint::{self, write_synced};
use crate::error::{FolderProblem, Result, TrainError};
use crate::schedule::{SCHEDULE, ScheduleLine};
use crate::summary::Summary;
use crate::thinned::Thinned;

pub(crate) const CONFIG: &str = "config.yaml";
const EVENTS: &str = "events.jsonl";
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// Marks the folder of several runs.
pub(crate) const SERIES: &str = ".series";

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

/// The open files of a run.
pub(crate) struct RunFolder {
    path: PathBuf,
    /// None where the run is only looked at.
    files: Option<Files>,
    /// Whether the folder was not there before.
    made: bool,
}

/// What is written while a run goes on.
struct Files {
    events: BufWriter<File>,
    event_bytes: u64,
    thinned: Thinned,
    schedule: BufWriter<File>,
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

    /// The settings that a run in this folder was started with, as text.
    pub fn settings_text(&self) -> Result<String> {
        let path = self.path.join(CONFIG);
        fs::read_to_string(&path).map_err(|source| TrainError::File { path, source })
    }

    /// What came of the run in this folder, where it has ended.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let text = fs::read_to_string(self.path.join(SUMMARY)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether the run in this folder was ended before it had saved or done anything.
    pub(crate) fn has_done_nothing(&self) -> bool {
        let steps = fs::metadata(self.path.join(SCHEDULE)).map_or(0, |metadata| metadata.len());
        steps == 0 && checkpoint::newest(&self.path.join(CHECKPOINTS)).is_none()
    }

    /// Makes the folder and opens its files; the run goes on after `step`.
    ///
    /// Where that fails for a new run, what was made is removed again.
    pub(crate) fn open(self, settings: &RunSettings, step: Step) -> Result<RunFolder> {
        let made = !self.path.exists();
        let opened = self.try_open(settings, step, made);
        let is_anothers = matches!(opened, Err(TrainError::Folder { .. }));
        if opened.is_err() && self.start == Start::New && !is_anothers {
            remove_run(&self.path, made);
        }
        opened
    }

    fn try_open(&self, settings: &RunSettings, step: Step, made: bool) -> Result<RunFolder> {
        let checkpoints = self.path.join(CHECKPOINTS);
        fs::create_dir_all(&checkpoints).map_err(|source| TrainError::File { path: checkpoints.clone(), source })?;
        let (events, schedule) = (self.path.join(EVENTS), self.path.join(SCHEDULE));
        let events = append(&events)?;
        self.lock(events.get_ref())?;
        checkpoint::sweep(&checkpoints)?;
        cut_schedule(&schedule, step).map_err(|source| TrainError::File { path: schedule.clone(), source })?;
        remove_file(&self.path.join(SUMMARY))?;
        replace(&self.path, CONFIG, to_yaml(settings).as_bytes())?;
        let event_bytes = events.get_ref().metadata().map_or(0, |metadata| metadata.len());
        let (schedule, thinned) = (append(&schedule)?, Thinned::default());
        let files = Some(Files { events, event_bytes, thinned, schedule });
        Ok(RunFolder { files, path: self.path.clone(), made })
    }

    /// Keeps other runs out until this process ends. Where a file system has no locks, nobody is kept out.
    fn lock(&self, events: &File) -> Result<()> {
        let refuse = |problem| Err(TrainError::Folder { path: self.path.clone(), problem });
        match events.try_lock() {
            Err(TryLockError::WouldBlock) => refuse(FolderProblem::InUse),
            _ if self.start == Start::New && self.path.join(CONFIG).exists() => refuse(FolderProblem::HasRun),
            _ => Ok(()),
        }
    }
}

impl RunFolder {
    /// The folder of a run that is only looked at: what happens meanwhile is not written down.
    pub(crate) fn only_read(path: &Path) -> RunFolder {
        RunFolder { path: path.to_owned(), files: None, made: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Writes an event down; in a large file, one of a step may wait for the steps after it.
    pub(crate) fn event(&mut self, record: &Record) -> Result<()> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let path = self.path.join(EVENTS);
        for record in files.thinned.next(record, files.event_bytes) {
            let written = json_line(&mut files.events, &record);
            files.event_bytes += written.map_err(|source| TrainError::File { path: path.clone(), source })?;
        }
        Ok(())
    }

    pub(crate) fn schedule(&mut self, line: &ScheduleLine) -> Result<()> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let path = self.path.join(SCHEDULE);
        json_line(&mut files.schedule, line).map(drop).map_err(|source| TrainError::File { path, source })
    }

    pub(crate) fn summary(&self, summary: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string_pretty(summary).expect("plain numbers and texts");
        text.push('\n');
        replace(&self.path, SUMMARY, text.as_bytes())
    }

    /// Removes a run that could not begin.
    pub(crate) fn abandon(&self) {
        remove_run(&self.path, self.made);
    }
}

/// Removes a run's files, and its folder where that was `made` for it. Best effort: the error that led here is what the
/// caller hears.
fn remove_run(folder: &Path, made: bool) {
    for name in [CONFIG, EVENTS, SCHEDULE] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir_all(folder.join(CHECKPOINTS));
    if made {
        let _ = fs::remove_dir(folder);
    }
}

/// Removes a file that may not be there.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(TrainError::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Writes a file of the run folder as a whole: a kill leaves the old one or the new one.
pub(crate) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let partial = folder.join(format!(".{name}.partial"));
    let written = write_synced(&partial, bytes).and_then(|()| fs::rename(&partial, &path));
    written.map_err(|source| {
        // Best effort: what is left is named as partial and never read.
        let _ = fs::remove_file(&partial);
        TrainError::File { path, source }
    })
}

/// Each line is handed to the system at once, so that someone who watches the file sees it; its bytes.
fn json_line(file: &mut BufWriter<File>, value: &impl Serialize) -> io::Result<u64> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.flush()?;
    Ok(line.len() as u64)
}

/// Opens a file of lines at its end. A last line that a kill cut short is dropped.
fn append(path: &Path) -> Result<BufWriter<File>> {
    let open = || {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = fs::read(path)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64)?;
        }
        Ok(BufWriter::new(file))
    };
    open().map_err(|source| TrainError::File { path: path.to_owned(), source })
}

/// Drops the lines of steps after `step`: they are made again.
fn cut_schedule(path: &Path, step: Step) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    let stays = |line: &&str| serde_json::from_str::<ScheduleLine>(line).is_ok_and(|line| line.step <= step);
    let kept: String = text.split_inclusive('\n').filter(stays).collect();
    if kept == text {
        return Ok(());
    }
    let partial = path.with_extension("jsonl.partial");
    write_synced(&partial, kept.as_bytes())?;
    fs::rename(&partial, path)
}

/// Whether nothing is in the folder, or only what a run leaves that was killed while it opened its files.
fn is_unused(path: &Path) -> bool {
    let config = format!(".{CONFIG}.partial");
    let ours = [EVENTS, SCHEDULE, CHECKPOINTS, SERIES, &config];
    let is_ours = |entry: &fs::DirEntry| ours.iter().any(|name| entry.file_name() == *name);
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

    #[test]
    fn a_torn_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(EVENTS);
        for (before, after) in [("a\nb\nc", "a\nb\nd\n"), ("a\n", "a\nd\n"), ("a", "d\n"), ("", "d\n")] {
            fs::write(&path, before).unwrap();
            let mut file = append(&path).unwrap();
            file.write_all(b"d\n").unwrap();
            file.flush().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn the_schedule_of_steps_that_are_made_again_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(SCHEDULE);
        let line = |step| format!("{{\"schema\":1,\"step\":{step},\"samples\":8,\"micro_batch\":8}}\n");
        let text: String = (1..=4).map(line).collect();
        fs::write(&path, format!("{text}{{\"schema\":1,\"st")).unwrap();
        cut_schedule(&path, Step(2)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), line(1) + &line(2));
    }
}
