//! The folder that data is written to, and which of its files are there already.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use lowtide_core::SCHEMA;
use lowtide_data::BatchFile;
use serde_json::{Value, json};

use super::scoring_files::ScoringFiles;
use crate::output::Failure;

/// The table of scores beside pickles.
pub(super) const SCORES: &str = "scores.csv";
/// Says what command writes to the folder.
const MARK: &str = ".generated.json";

/// A folder that belongs to this command alone.
pub(super) struct OutFolder {
    path: PathBuf,
    /// The names of the files that were there.
    there: HashSet<String>,
    kept: AtomicUsize,
    /// Locked: nobody else writes there meanwhile.
    _locked: File,
}

impl OutFolder {
    /// Makes the folder, or goes on in one that the same command began. Anything else that is in it is a reason to
    /// refuse.
    pub(super) fn open(path: &Path, files: &ScoringFiles) -> Result<OutFolder, Failure> {
        let failed = Failure::at(path);
        fs::create_dir_all(path).map_err(&failed)?;
        let locked = File::open(path).map_err(&failed)?;
        locked.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => in_use(path),
            TryLockError::Error(error) => failed(error),
        })?;
        let names = names_in(path).map_err(&failed)?;
        let mark = mark(files);
        if names.contains(MARK) {
            compare(path, &fs::read_to_string(path.join(MARK)).map_err(&failed)?, &mark)?;
        } else if let Some(name) = names.iter().find(|name| lowtide_disk::leftover_of(name) != Some(MARK)) {
            return Err(other_things(path, name));
        }
        let ours: HashSet<String> = (0..files.ranges.len()).map(|file| files.name_of(file)).collect();
        let known = |name: &str| ours.contains(name) || name.starts_with('.') || files.has_table() && name == SCORES;
        if let Some(name) = names.iter().find(|name| !known(name)) {
            return Err(other_things(path, name));
        }
        // A kill leaves files that are not whole, under names of their own.
        for name in names.iter().filter(|name| is_leftover(name, &ours)) {
            fs::remove_file(path.join(name)).map_err(&failed)?;
        }
        if !names.contains(MARK) {
            lowtide_disk::write(&path.join(MARK), format!("{mark:#}\n").as_bytes())
                .map_err(|error| failed(error.source))?;
        }
        let there = names.into_iter().filter(|name| ours.contains(name)).collect();
        Ok(OutFolder { path: path.to_owned(), there, kept: AtomicUsize::new(0), _locked: locked })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn path_of(&self, files: &ScoringFiles, file: usize) -> PathBuf {
        self.path.join(files.name_of(file))
    }

    /// Whether a file was there and can be read; it is counted then. A damaged one is to be written anew.
    pub(super) fn keeps(&self, files: &ScoringFiles, file: usize) -> bool {
        let samples = files.ranges[file].end - files.ranges[file].start;
        let keeps = self.there.contains(&files.name_of(file))
            && BatchFile::open(&self.path_of(files, file)).is_ok_and(|there| there.samples() == samples);
        self.kept.fetch_add(usize::from(keeps), Ordering::Relaxed);
        keeps
    }

    /// How many files were kept so far.
    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

fn names_in(path: &Path) -> io::Result<HashSet<String>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Whether a kill left it of one of our files.
fn is_leftover(name: &str, ours: &HashSet<String>) -> bool {
    lowtide_disk::leftover_of(name).is_some_and(|file| ours.contains(file) || file == SCORES || file == MARK)
}

/// All that the files depend on.
fn mark(files: &ScoringFiles) -> Value {
    json!({
        "schema": SCHEMA,
        "workload": "scoring",
        "format": files.format.name(),
        "seed": files.data.items.seed,
        "samples": files.samples(),
        "cut": files.cut,
        "steps": [files.data.steps.start(), files.data.steps.end()],
    })
}

/// Refuses a folder that another command began, and says in what it differs.
fn compare(path: &Path, there: &str, here: &Value) -> Result<(), Failure> {
    let there: Value = serde_json::from_str(there).unwrap_or(Value::Null);
    if there == *here {
        return Ok(());
    }
    let differs = here.as_object().and_then(|keys| keys.iter().find(|(key, value)| there[key] != **value));
    let how =
        differs.map_or(String::new(), |(key, value)| format!(": `{key}` is {} there, and {value} here", there[key]));
    let text = format!("{}: another command wrote to it{how}", path.display());
    Err(Failure::bad_input(text, Some("name another folder, or delete this one".to_owned())))
}

fn other_things(path: &Path, name: &str) -> Failure {
    let text = format!("{}: there is something else in it: `{}`", path.display(), name.escape_debug());
    Failure::bad_input(text, Some("name a new folder or an empty one".to_owned()))
}

fn in_use(path: &Path) -> Failure {
    let text = format!("{}: another process writes to it", path.display());
    Failure::bad_input(text, Some("wait until it has ended, or name another folder".to_owned()))
}
