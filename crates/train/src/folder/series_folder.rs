//! Several runs, one after the other, in one folder.
//!
//! Each run has a whole folder of its own under it, named after the run, and can be resumed there too. The folder
//! itself holds `config.yaml` (the settings of all of them), `summary.json`, and `.series`, which marks it and is
//! locked while a process trains in it.

use std::fs;
use std::path::{Path, PathBuf};

use lowtide_core::SCHEMA;
use lowtide_disk::{FolderNews, HeldFolder};
use lowtide_journal::LineFile;
use lowtide_settings::RunSettings;
use serde_json::{Value, json};

use super::checkpoints::CHECKPOINTS;
use super::folder_choice::{FolderChoice, Start};
use super::run_files::{CONFIG, SERIES, SUMMARY, config_text, remove_file, write_summary};
use super::summary::{RunEnding, Summary};
use crate::error::{FolderProblem, Result, TrainError};

/// The folder of several runs, kept from other processes while this lives.
#[derive(Debug)]
pub struct SeriesFolder {
    held: HeldFolder,
    _locked: LineFile,
}

impl SeriesFolder {
    /// Whether the runs of a series are, or were to be, in this folder.
    #[must_use]
    pub fn is_at(path: &Path) -> bool {
        path.join(SERIES).is_file()
    }

    /// Makes the folder and notes the settings of all runs.
    pub fn open(choice: &FolderChoice, settings: &RunSettings) -> Result<SeriesFolder> {
        let path = choice.path().to_owned();
        let refuse = |problem| Err(TrainError::Folder { path: path.clone(), problem });
        if path.join(CHECKPOINTS).exists() {
            return refuse(FolderProblem::HasOneRun);
        }
        fs::create_dir_all(&path).map_err(TrainError::at(&path))?;
        let held = HeldFolder::open(&path).map_err(TrainError::at(&path))?;
        let way = held.way();
        let locked = LineFile::open(&way.join(SERIES)).map_err(|error| TrainError::from(error).shown_in(&held))?;
        if locked.is_anothers() {
            return refuse(FolderProblem::InUse);
        }
        if choice.start() == Start::New && way.join(CONFIG).exists() {
            return refuse(FolderProblem::HasRun);
        }
        remove_file(&way.join(SUMMARY)).map_err(|error| error.shown_in(&held))?;
        let config = config_text(settings);
        lowtide_disk::write(&way.join(CONFIG), config.as_bytes())
            .map_err(|error| TrainError::from(error).shown_in(&held))?;
        Ok(SeriesFolder { held, _locked: locked })
    }

    /// The folders of the runs that are in the series at `path`, in the order of their names.
    pub fn runs(path: &Path) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(path).map_err(TrainError::at(path))?;
        let mut runs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        runs.retain(|run| run.join(CONFIG).is_file());
        runs.sort();
        Ok(runs)
    }

    /// The folder, wherever it is by now.
    ///
    /// # Errors
    ///
    /// It was deleted.
    pub fn path(&mut self) -> Result<&Path> {
        match self.held.look() {
            FolderNews::Gone => {
                Err(TrainError::Folder { path: self.held.path().to_owned(), problem: FolderProblem::Deleted })
            }
            FolderNews::Same | FolderNews::Moved => Ok(self.held.path()),
        }
    }

    /// The folder of the run of this name: to go on where it is there already.
    pub fn run(&mut self, name: &str) -> Result<FolderChoice> {
        let path = self.path()?.join(name);
        let start = if path.join(CONFIG).is_file() { Start::Resume } else { Start::New };
        FolderChoice::look(&path, start)
    }

    /// Writes `summary.json`; returns what is in it.
    pub fn summarise(&mut self, workload: &str, runs: &[RunResult]) -> Result<Value> {
        let summary = summary(workload, runs);
        self.path()?;
        write_summary(self.held.way(), &summary).map_err(|error| error.shown_in(&self.held))?;
        Ok(summary)
    }
}

/// One run of a series, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// Its name.
    pub name: String,
    /// Its figures, or the error that ended it.
    pub result: Result<Summary, String>,
}

/// The keys of one run, and each run by its name under `models`.
///
/// Counts and times are sums over all runs, peaks are the highest, all else is of the last run that has figures.
fn summary(workload: &str, runs: &[RunResult]) -> Value {
    let figures: Vec<&Summary> = runs.iter().filter_map(|run| run.result.as_ref().ok()).collect();
    let mut whole = json!({"schema": SCHEMA});
    if let Some(last) = figures.last() {
        whole = json!(last);
        let sum = |figure: fn(&Summary) -> u64| json!(figures.iter().map(|run| figure(run)).sum::<u64>());
        let highest = |figure: fn(&Summary) -> u64| json!(figures.iter().map(|run| figure(run)).max());
        whole["steps"] = sum(|run| run.steps);
        whole["oom_errors"] = sum(|run| run.oom_errors);
        whole["oom_recovered"] = sum(|run| run.oom_recovered);
        whole["skipped_steps"] = sum(|run| run.skipped_steps);
        whole["samples_seen"] = sum(|run| run.samples_seen);
        whole["samples_lost"] = sum(|run| run.samples_lost);
        whole["peak_reserved_bytes"] = highest(|run| run.peak_reserved_bytes);
        whole["peak_allocated_bytes"] = highest(|run| run.peak_allocated_bytes);
        whole["peak_rss_bytes"] = highest(|run| run.peak_rss_bytes);
        whole["cache"] = json!(figures.iter().filter_map(|run| run.cache.clone()).reduce(|all, next| next.after(&all)));
        whole["wall_seconds"] = json!(figures.iter().map(|run| run.wall_seconds).sum::<f64>());
    }
    whole["workload"] = json!(workload);
    whole["stopped"] = stopped(runs);
    whole["models"] = runs.iter().map(|run| (run.name.clone(), row(run))).collect();
    whole
}

/// How a series ended, in the words of `stopped`.
fn stopped(runs: &[RunResult]) -> Value {
    let ends_as =
        |ending: &RunEnding| runs.iter().any(|run| run.result.as_ref().is_ok_and(|summary| summary.stopped == *ending));
    match [RunEnding::Interrupted, RunEnding::Line].into_iter().find(ends_as) {
        Some(ending) => json!(ending),
        None if runs.iter().any(|run| run.result.is_err()) => json!("error"),
        None => json!(RunEnding::Finished),
    }
}

fn row(run: &RunResult) -> Value {
    match &run.result {
        Ok(run) => json!({
            "stopped": run.stopped,
            "stopped_early_at": run.stopped_early_at,
            "steps": run.steps,
            "parameters": run.parameters,
            "eval_loss": run.eval_loss,
            "metrics": run.metrics,
            "weights_sha256": run.weights_sha256,
            "cache": run.cache,
            "wall_seconds": run.wall_seconds,
        }),
        Err(error) => json!({ "error": error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_kept_from_others_and_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series");
        let settings = RunSettings::default();
        let choice = FolderChoice::look(&path, Start::New).unwrap();
        assert!(!SeriesFolder::is_at(&path));
        let open = SeriesFolder::open(&choice, &settings).unwrap();
        assert!(SeriesFolder::is_at(&path));
        let resume = FolderChoice::look(&path, Start::Resume).unwrap();
        let error = SeriesFolder::open(&resume, &settings).unwrap_err();
        assert!(matches!(error, TrainError::Folder { problem: FolderProblem::InUse, .. }), "{error}");
        drop(open);
        let mut open = SeriesFolder::open(&resume, &settings).unwrap();
        assert_eq!(open.run("a").unwrap().start(), Start::New);
    }

    #[test]
    fn a_series_of_failures_has_a_summary() {
        let failed = RunResult { name: "a".to_owned(), result: Err("no".to_owned()) };
        let expect = json!({"schema": 1, "workload": "w", "stopped": "error", "models": {"a": {"error": "no"}}});
        assert_eq!(summary("w", &[failed]), expect);
    }
}
