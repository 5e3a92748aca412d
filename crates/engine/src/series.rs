//! Several runs, one after the other, that one configuration asks for.
//!
//! One that fails does not end the others: its error stands beside their figures.

use std::path::Path;

use lowtide_settings::RunSettings;
use lowtide_train::{FolderChoice, Result, RunResult, SeriesFolder, Start, Stopped, Summary, TrainError};
use lowtide_workloads::{Series, SeriesRun};

use crate::comparison;
use crate::exit::{Ended, tell};
use crate::outlook::{print_summary, to_stderr};
use crate::session::{Session, Told};

/// Trains what is not finished yet and tells what came of all; `told` has one for each run.
pub(crate) fn train(
    session: &Session<'_>,
    series: &Series,
    told: Vec<Told<'_>>,
    choice: &FolderChoice,
) -> anyhow::Result<Ended> {
    let mut done = Done { folder: None, results: Vec::new(), ended: Ended::Finished };
    for (run, told) in series.runs.iter().zip(told) {
        if session.is_to_end() {
            done.ended = Ended::Interrupted;
        }
        if done.ended == Ended::Interrupted {
            break;
        }
        done.add(session, series, run, told, choice)?;
    }
    let Done { folder, results, ended } = done;
    // None where all of them were finished before, or none had begun.
    let folder = folder.map_or_else(|| SeriesFolder::open(choice, &series.settings), Ok)?;
    let summary = folder.summarise(&series.settings.workload, &results)?;
    if session.is_json() {
        print_summary(&summary, folder.path());
    } else {
        last_words(series, &results, ended, folder.path()).iter().for_each(|line| to_stderr(line));
    }
    Ok(ended)
}

/// What is done of a series.
struct Done {
    /// Opened when the first run is about to begin: until then nothing is written.
    folder: Option<SeriesFolder>,
    results: Vec<RunResult>,
    ended: Ended,
}

impl Done {
    /// One more run.
    fn add(
        &mut self,
        session: &Session<'_>,
        series: &Series,
        run: &SeriesRun,
        told: Told<'_>,
        choice: &FolderChoice,
    ) -> Result<()> {
        let SeriesRun { name, loaded } = run;
        let title = format!("{name}: run {} of {}", self.results.len() + 1, series.runs.len());
        if let Some(summary) = finished(&choice.path().join(name), &loaded.settings) {
            session.say(&format!("{title}, finished before"));
            self.results.push(RunResult { name: name.clone(), result: Ok(summary) });
            return Ok(());
        }
        session.say(&title);
        let built = session.build(loaded);
        let folder = match (self.folder.take(), &built) {
            (Some(folder), _) => folder,
            // What is wrong with the input of the first run is wrong with that of all.
            (None, Err(error)) if error.is_users() => return built.map(drop),
            (None, _) => SeriesFolder::open(choice, &series.settings)?,
        };
        let outcome = built.and_then(|built| session.run(&built, folder.run(name)?, told, folder.path()));
        self.folder = Some(folder);
        session.clear()?;
        let result = outcome.map(|outcome| outcome.summary);
        self.ended = self.ended.and(match &result {
            Ok(summary) => summary.stopped.into(),
            Err(error) => {
                tell(error);
                failure(error)
            }
        });
        self.results.push(RunResult { name: name.clone(), result: result.map_err(|error| error.to_string()) });
        Ok(())
    }
}

fn last_words(series: &Series, results: &[RunResult], ended: Ended, folder: &Path) -> Vec<String> {
    let waiting = series.runs[results.len()..].iter().map(|run| run.name.as_str());
    let mut lines = comparison::lines(results, waiting);
    let folder = folder.display();
    if ended != Ended::Finished {
        lines.push(format!("hint: go on with what is not finished: lowtide train --resume --out {folder}"));
    }
    lines.push(format!("everything about these runs is in {folder}"));
    lines
}

/// What came of the run in `path`, where it is finished and nothing more is asked of it now.
fn finished(path: &Path, now: &RunSettings) -> Option<Summary> {
    let choice = FolderChoice::look(path, Start::Resume).ok()?;
    let summary = choice.summary().filter(|summary| summary.stopped == Stopped::Finished)?;
    let text = choice.settings_text().ok()?;
    let before = RunSettings::load(Some((path, &text)), &[]).ok()?.settings;
    let is_long_enough = match now.train.epochs {
        Some(epochs) => before.train.epochs.is_some_and(|before| epochs <= before),
        None => now.train.steps <= before.train.steps,
    };
    (is_long_enough && now.eval.patience == before.eval.patience).then_some(summary)
}

/// How a series ends one of whose runs failed.
fn failure(error: &TrainError) -> Ended {
    match error {
        TrainError::Line { .. } | TrainError::LineTooSmall { .. } => Ended::Line,
        TrainError::Engine(error) if error.is_oom() => Ended::Line,
        _ => Ended::Failed,
    }
}
