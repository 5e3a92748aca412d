//! Several runs side by side: those of a series, or all in a folder.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use lowtide_core::Bytes;
use lowtide_sensors::{Detail, Sample};
use serde::Serialize;

use super::command::CommandHeader;
use super::figures::{Figures, RunHeader};
use super::pace::TimeLeft;
use super::run::{CONFIG, EVENTS, Run};
use super::state::RunState;
use crate::error::WatchError;
use crate::machine::{FreeMemory, MachineStatus, ProcessMonitor, Viewpoint};

/// The most runs that are followed at once; of more in a folder, the newest.
pub const RUNS: usize = 32;
/// How often folders are looked into for new runs.
const SLOW: Duration = Duration::from_millis(500);

/// What is watched: runs, or a process for itself, and the machine.
#[derive(Debug, Default)]
pub struct Board {
    places: Vec<Place>,
    runs: Vec<Run>,
    monitor: Option<ProcessMonitor>,
    sample: Option<Sample>,
    detail: Option<Detail>,
    live: MachineStatus,
    looked: Option<SystemTime>,
}

/// A folder that was asked for.
#[derive(Debug)]
enum Place {
    Run(PathBuf),
    /// A folder whose folders are runs.
    Several(PathBuf),
}

/// A run in the list of all.
#[derive(Debug, Serialize)]
pub struct RunRow<'a> {
    /// Its number.
    pub id: usize,
    /// Its name.
    pub name: &'a str,
    /// What it said when it began.
    pub header: Option<&'a RunHeader>,
    /// The command, where it is one that is kept alive.
    pub command: Option<&'a CommandHeader>,
    /// Whether it is under way.
    #[serde(flatten)]
    pub state: &'a RunState,
    /// The same in words.
    pub state_text: String,
    /// Its figures.
    pub figures: &'a Figures,
    /// How long it has still to go.
    pub time_left: Option<TimeLeft>,
    /// Memory that is still to be had.
    pub free: Option<&'a FreeMemory>,
    /// Lines that could not be read.
    pub unread: u64,
}

impl<'a> RunRow<'a> {
    fn of(id: usize, run: &'a Run) -> RunRow<'a> {
        RunRow {
            id,
            name: run.name(),
            header: run.header(),
            command: run.command(),
            state: run.state(),
            state_text: run.state().text(),
            figures: run.figures(),
            time_left: run.time_left(),
            free: run.free(),
            unread: run.unread(),
        }
    }
}

impl Board {
    /// Looks at folders of runs, of series, or of both. Nothing of the runs is read yet.
    ///
    /// # Errors
    ///
    /// A folder is not there, may not be read, or has no run in it.
    pub fn open(folders: &[PathBuf]) -> Result<Board, WatchError> {
        let places = folders.iter().map(|folder| place(folder)).collect::<Result<Vec<Place>, WatchError>>()?;
        let mut board = Board { places, ..Board::default() };
        board.find_runs();
        Ok(board)
    }

    /// Looks at a process for itself, from `now` on.
    #[must_use]
    pub fn of_process(pid: u32, now: SystemTime) -> Board {
        Board { monitor: Some(ProcessMonitor::new(pid, now)), ..Board::default() }
    }

    /// Looks at one more folder, as of a run that has just begun.
    ///
    /// # Errors
    ///
    /// The folder is not there, may not be read, or has no run in it.
    pub fn join(&mut self, folder: &Path) -> Result<(), WatchError> {
        self.places.push(place(folder)?);
        self.looked = None;
        Ok(())
    }

    /// Reads what is new, a slice of each run; whether there is more to read at once.
    ///
    /// # Errors
    ///
    /// Events may not be read.
    pub fn look(&mut self, now: SystemTime) -> Result<bool, WatchError> {
        let is_due = self.looked.is_none_or(|looked| now.duration_since(looked).map_or(true, |since| since >= SLOW));
        if is_due {
            self.looked = Some(now);
            self.find_runs();
        }
        let mut more = false;
        for run in &mut self.runs {
            let path = run.folder().to_owned();
            more |= run.look(now).map_err(|source| WatchError::Unreadable { path, source })?;
        }
        Ok(more)
    }

    /// Reads all that is there.
    ///
    /// # Errors
    ///
    /// Events may not be read.
    pub fn catch_up(&mut self, now: SystemTime) -> Result<(), WatchError> {
        while self.look(now)? {}
        Ok(())
    }

    /// The runs, in the order in which they were found. None ever leaves.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The processes that samples are to tell of: the watched one, else those of all runs that are under way, the newest
    /// first. There are no more of them than runs are followed.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        if let Some(monitor) = &self.monitor {
            return vec![monitor.pid()];
        }
        let mut processes = Vec::new();
        for pid in self.runs.iter().rev().filter_map(Run::process) {
            // A process of another container has the number 0 here, and runs of a series share one.
            if pid != 0 && !processes.contains(&pid) {
                processes.push(pid);
            }
        }
        processes
    }

    /// Takes a sample of the machine and of [`Board::processes`]; `detail` where the slow part was read anew.
    pub fn add(&mut self, now: SystemTime, sample: Sample, detail: Option<Detail>) {
        if detail.is_some() {
            self.detail = detail;
        }
        for viewpoint in Viewpoint::all(&sample, self.detail.as_ref()) {
            for run in self.runs.iter_mut().filter(|run| run.process().is_some() && run.process() == viewpoint.pid()) {
                run.add(now, &viewpoint);
            }
        }
        if let Some(monitor) = &mut self.monitor {
            monitor.add(now, &sample, self.detail.as_ref());
        }
        self.live = MachineStatus::of(&sample, self.detail.as_ref(), |pid| self.caption(pid));
        self.sample = Some(sample);
    }

    /// What a sampled process is called, and the limit on memory of the host that it has.
    fn caption(&self, pid: u32) -> (String, Option<Bytes>) {
        if self.monitor.is_some() {
            return ("this process".to_owned(), None);
        }
        let run = self.runs.iter().rev().find(|run| run.process() == Some(pid));
        let limit = run.and_then(|run| run.header()?.host_line);
        match run {
            Some(run) if self.processes().len() > 1 => (run.name().to_owned(), limit),
            _ => ("this run".to_owned(), limit),
        }
    }

    /// The newest sample of the machine, in words.
    #[must_use]
    pub fn live(&self) -> &MachineStatus {
        &self.live
    }

    /// The newest sample of the machine.
    #[must_use]
    pub fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// What was read last of what takes long.
    #[must_use]
    pub fn detail(&self) -> Option<&Detail> {
        self.detail.as_ref()
    }

    /// The process that is watched for itself.
    #[must_use]
    pub fn monitor(&self) -> Option<&ProcessMonitor> {
        self.monitor.as_ref()
    }

    /// The list of all runs.
    #[must_use]
    pub fn rows(&self) -> Vec<RunRow<'_>> {
        self.runs.iter().enumerate().map(|(id, run)| RunRow::of(id, run)).collect()
    }

    fn find_runs(&mut self) {
        let mut found = Vec::new();
        for place in &self.places {
            match place {
                Place::Run(folder) => found.push(folder.clone()),
                Place::Several(folder) => found.extend(runs_in(folder).unwrap_or_default()),
            }
        }
        for folder in found {
            if self.runs.len() < RUNS && !self.runs.iter().any(|run| run.folder() == folder) {
                self.runs.push(Run::new(name(&folder), folder));
            }
        }
    }
}

fn place(folder: &Path) -> Result<Place, WatchError> {
    let path = folder.to_owned();
    let metadata = match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(WatchError::Missing { path }),
        Err(source) => return Err(WatchError::Unreadable { path, source }),
        Ok(metadata) => metadata,
    };
    if !metadata.is_dir() {
        return Err(WatchError::NoFolder { path });
    }
    let runs = runs_in(folder).map_err(|source| WatchError::Unreadable { path: path.clone(), source })?;
    match Run::is_at(folder) {
        true => Ok(Place::Run(path)),
        false if !runs.is_empty() || folder.join(".series").exists() => Ok(Place::Several(path)),
        false => Err(WatchError::NoRun { path }),
    }
}

/// The newest runs in a folder, the oldest of them first.
fn runs_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        // Settings alone are too common a thing to be taken for a run here.
        if !path.join(EVENTS).is_file() {
            continue;
        }
        runs.push((begun(&path), path));
    }
    runs.sort();
    Ok(runs.into_iter().rev().take(RUNS).rev().map(|(_, path)| path).collect())
}

/// The newest run or series in a folder of runs.
#[must_use]
pub fn newest_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let runs = entries.filter(|path| path.join(EVENTS).is_file() || path.join(".series").is_file());
    runs.max_by_key(|path| begun(path))
}

/// When a run began; of a command that is kept alive, which has no settings, when it last wrote.
fn begun(folder: &Path) -> Option<SystemTime> {
    let settings = fs::metadata(folder.join(CONFIG)).or_else(|_| fs::metadata(folder.join(EVENTS)));
    settings.and_then(|metadata| metadata.modified()).ok()
}

fn name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned())
}
