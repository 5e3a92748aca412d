//! Which log is meant: a file, or that of a command which `lowtide run` kept alive.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use lowtide_core::{CommandOutcome, Event, Record};

use crate::output::{Failure, RUNS};

const EVENTS: &str = "events.jsonl";

/// A log, and the command that wrote it where that is known.
#[derive(Debug)]
pub(super) struct RunLog {
    pub(super) path: PathBuf,
    pub(super) command: Option<String>,
}

impl RunLog {
    /// The log that was named, that of the folder which was named, of the newest run in it, or of the newest run here.
    pub(super) fn find(named: Option<&Path>) -> Result<RunLog, Failure> {
        match named {
            Some(folder) if folder.is_dir() => {
                Self::in_folder(folder).or_else(|| Self::newest(folder)).ok_or_else(|| {
                    let text = format!("{}: no log of `lowtide run` is in this folder", folder.display());
                    Failure::bad_input(
                        text,
                        Some("name the log itself, or the folder that `lowtide run` printed".to_owned()),
                    )
                })
            }
            Some(path) => Ok(RunLog { path: path.to_owned(), command: None }),
            None => Self::newest(Path::new(RUNS)).ok_or_else(|| {
                let text = format!("no log is named, and no run of `lowtide run` is in {RUNS}/ here");
                Failure::bad_input(text, Some("lowtide explain train.log, or `-` for standard input".to_owned()))
            }),
        }
    }

    fn newest(runs: &Path) -> Option<RunLog> {
        let folders = fs::read_dir(runs).ok()?.flatten().map(|entry| entry.path());
        let written = |folder: &PathBuf| fs::metadata(folder.join(EVENTS)).and_then(|file| file.modified()).ok();
        let mut runs: Vec<_> = folders.filter_map(|folder| Some((written(&folder)?, folder))).collect();
        runs.sort();
        runs.into_iter().rev().find_map(|(_, folder)| Self::in_folder(&folder))
    }

    /// The last start that ran out of memory, else the last.
    fn in_folder(folder: &Path) -> Option<RunLog> {
        let mut last: Option<(u32, String)> = None;
        let mut failed: Option<(u32, String)> = None;
        let lines = BufReader::new(File::open(folder.join(EVENTS)).ok()?).split(b'\n');
        for line in lines.map_while(Result::ok) {
            match serde_json::from_slice::<Record>(&line).map(|record| record.event) {
                Ok(Event::CommandStarted { start, command, .. }) => last = Some((start, command)),
                Ok(Event::CommandEnded { outcome: CommandOutcome::OutOfMemory, .. }) => failed = last.clone(),
                _ => {}
            }
        }
        let (start, command) = failed.or(last)?;
        let path = folder.join(format!("start-{start}.log"));
        path.is_file().then_some(RunLog { path, command: Some(command) })
    }
}
