//! The folder that data is written to, and which of its files are there already.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use lowtide_core::SCHEMA;
use lowtide_data::BatchFile;
use serde_json::{Value, json};

use super::{Failure, Plan, SCORES};

/// Says what command writes to the folder.
const MARK: &str = ".generated.json";
/// How files that are being written end.
const PARTIAL: &str = ".partial";

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
    pub(super) fn open(path: &Path, plan: &Plan) -> Result<OutFolder, Failure> {
        let failed = |error: io::Error| Failure { text: format!("{}: {error}", path.display()), hint: None };
        fs::create_dir_all(path).map_err(failed)?;
        let locked = File::open(path).map_err(failed)?;
        locked.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => in_use(path),
            TryLockError::Error(error) => failed(error),
        })?;
        let names = names_in(path).map_err(failed)?;
        let mark = mark(plan);
        if names.contains(MARK) {
            compare(path, &fs::read_to_string(path.join(MARK)).map_err(failed)?, &mark)?;
        } else if let Some(name) = names.iter().find(|name| !is_mark_under_way(name)) {
            return Err(other_things(path, name));
        }
        let ours: HashSet<String> = (0..plan.files.len()).map(|file| plan.name_of(file)).collect();
        let known = |name: &str| ours.contains(name) || name.starts_with('.') || plan.has_table() && name == SCORES;
        if let Some(name) = names.iter().find(|name| !known(name)) {
            return Err(other_things(path, name));
        }
        // A kill leaves files that are not whole, under names of their own.
        for name in names.iter().filter(|name| is_under_way(name, &ours) || is_mark_under_way(name)) {
            fs::remove_file(path.join(name)).map_err(failed)?;
        }
        if !names.contains(MARK) {
            let under_way = path.join(format!("{MARK}{PARTIAL}"));
            fs::write(&under_way, format!("{mark:#}\n")).map_err(failed)?;
            fs::rename(under_way, path.join(MARK)).map_err(failed)?;
        }
        let there = names.into_iter().filter(|name| ours.contains(name)).collect();
        Ok(OutFolder { path: path.to_owned(), there, kept: AtomicUsize::new(0), _locked: locked })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn path_of(&self, plan: &Plan, file: usize) -> PathBuf {
        self.path.join(plan.name_of(file))
    }

    /// Whether a file was there and can be read; it is counted then. A damaged one is to be written anew.
    pub(super) fn keeps(&self, plan: &Plan, file: usize) -> bool {
        let samples = plan.files[file].end - plan.files[file].start;
        let keeps = self.there.contains(&plan.name_of(file))
            && BatchFile::open(&self.path_of(plan, file)).is_ok_and(|there| there.samples() == samples);
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

/// Whether it is one of our files, under the name that it is written under.
fn is_under_way(name: &str, ours: &HashSet<String>) -> bool {
    let inner = name.strip_prefix('.').and_then(|name| name.strip_suffix(PARTIAL));
    // What is left is the name of the file, a point, and a part that tells processes apart.
    inner.and_then(|inner| inner.rsplit_once('.')).is_some_and(|(file, _)| ours.contains(file) || file == SCORES)
}

fn is_mark_under_way(name: &str) -> bool {
    name.strip_suffix(PARTIAL) == Some(MARK)
}

/// All that the files depend on.
fn mark(plan: &Plan) -> Value {
    json!({
        "schema": SCHEMA,
        "workload": "scoring",
        "format": plan.format.name(),
        "seed": plan.data.items.seed,
        "samples": plan.samples(),
        "cut": plan.cut,
        "steps": [plan.data.steps.start(), plan.data.steps.end()],
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
    let hint = Some("name another folder, or delete this one".to_owned());
    Err(Failure { text: format!("{}: another command wrote to it{how}", path.display()), hint })
}

fn other_things(path: &Path, name: &str) -> Failure {
    let text = format!("{}: there is something else in it: `{}`", path.display(), name.escape_debug());
    Failure { text, hint: Some("name a new folder or an empty one".to_owned()) }
}

fn in_use(path: &Path) -> Failure {
    let text = format!("{}: another process writes to it", path.display());
    Failure { text, hint: Some("wait until it has ended, or name another folder".to_owned()) }
}
