//! The folder of a run: where everything about it is written.
//!
//! | file | what |
//! | --- | --- |
//! | `config.yaml` | the settings as resolved |
//! | `events.jsonl` | one [`Record`] a line, as it happens |
//! | `schedule.jsonl` | the micro-batches of each step |
//! | `checkpoints/STEP/` | the state after that step |
//! | `summary.json` | what came of it, written last |

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lowtide_core::{MicroBatch, Record, SCHEMA, Step};
use lowtide_settings::{RunSettings, to_yaml};
use serde::Serialize;

use crate::checkpoint::write_synced;
use crate::error::{FolderProblem, Result, TrainError};

const CONFIG: &str = "config.yaml";
const EVENTS: &str = "events.jsonl";
const SCHEDULE: &str = "schedule.jsonl";
const SUMMARY: &str = "summary.json";

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
}

/// The open files of a run.
pub(crate) struct RunFolder {
    path: PathBuf,
    events: BufWriter<File>,
    schedule: BufWriter<File>,
}

#[derive(Serialize)]
struct ScheduleLine {
    schema: u32,
    step: Step,
    samples: u32,
    micro_batch: MicroBatch,
}

impl FolderChoice {
    /// Looks whether `path` can be used, and writes nothing.
    pub fn look(path: &Path, start: Start) -> Result<FolderChoice> {
        let refuse = |problem| Err(TrainError::Folder { path: path.to_owned(), problem });
        let has_run = path.join(CONFIG).is_file();
        match start {
            _ if path.exists() && !path.is_dir() => return refuse(FolderProblem::IsFile),
            Start::Resume if !has_run => return refuse(FolderProblem::NothingToResume),
            Start::New if has_run => return refuse(FolderProblem::HasRun),
            Start::New if !is_empty(path) => return refuse(FolderProblem::NotEmpty),
            _ => {}
        }
        if !writable(path) {
            return refuse(FolderProblem::NotWritable);
        }
        Ok(FolderChoice { path: path.to_owned() })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The settings that a run in this folder was started with, as text.
    pub fn settings_text(&self) -> Result<String> {
        let path = self.path.join(CONFIG);
        fs::read_to_string(&path).map_err(|source| TrainError::File { path, source })
    }

    /// Makes the folder and opens its files.
    pub(crate) fn open(self, settings: &RunSettings) -> Result<RunFolder> {
        let checkpoints = self.path.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|source| TrainError::File { path: checkpoints, source })?;
        let config = self.path.join(CONFIG);
        write_synced(&config, to_yaml(settings).as_bytes())
            .map_err(|source| TrainError::File { path: config, source })?;
        Ok(RunFolder {
            events: append(&self.path.join(EVENTS))?,
            schedule: append(&self.path.join(SCHEDULE))?,
            path: self.path,
        })
    }
}

impl RunFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    pub(crate) fn event(&mut self, record: &Record) -> Result<()> {
        let path = self.path.join(EVENTS);
        json_line(&mut self.events, record).map_err(|source| TrainError::File { path, source })
    }

    pub(crate) fn schedule(&mut self, step: Step, samples: u32, micro_batch: MicroBatch) -> Result<()> {
        let path = self.path.join(SCHEDULE);
        let line = ScheduleLine { schema: SCHEMA, step, samples, micro_batch };
        json_line(&mut self.schedule, &line).map_err(|source| TrainError::File { path, source })
    }

    pub(crate) fn summary(&mut self, summary: &impl Serialize) -> Result<()> {
        let path = self.path.join(SUMMARY);
        let partial = self.path.join(".summary.json.partial");
        let text = serde_json::to_string_pretty(summary).expect("plain numbers and texts");
        write_synced(&partial, text.as_bytes())
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|source| TrainError::File { path, source })
    }
}

/// Each line is handed to the system at once, so that someone who watches the file sees it.
fn json_line(file: &mut BufWriter<File>, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")?;
    file.flush()
}

fn append(path: &Path) -> Result<BufWriter<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map(BufWriter::new).map_err(|source| TrainError::File { path: path.to_owned(), source })
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Whether files can be made in the folder, or in the nearest folder above it that is there.
fn writable(path: &Path) -> bool {
    let Some(there) = path.ancestors().find(|folder| !folder.as_os_str().is_empty() && folder.exists()) else {
        return writable(Path::new("."));
    };
    let probe = there.join(format!(".lowtide-{}", std::process::id()));
    let made = there.is_dir() && File::create(&probe).is_ok();
    // It may never have been made.
    let _ = fs::remove_file(&probe);
    made
}
