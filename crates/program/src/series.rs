//! Several runs, one after the other, that one configuration asks for.
//!
//! One that fails does not end the others: its error stands beside their figures.

use std::path::Path;

use lowtide_settings::RunSettings;
use lowtide_train::{
    FolderChoice, Result, RunEnding, RunResult, Series, SeriesFolder, SeriesRun, Start, Summary, TrainError,
};

use crate::Program;
use crate::exit::{Exit, tell};
use crate::output::{comparison, print_summary, to_stderr};
use crate::session::{RunExtras, Session};

/// Trains what is not finished yet and tells what came of all; `extras` has one for each run.
pub(crate) fn train(
    session: &Session<'_>,
    series: &Series,
    extras: Vec<RunExtras<'_>>,
    choice: &FolderChoice,
) -> anyhow::Result<Exit> {
    let mut progress = SeriesProgress { folder: None, results: Vec::new(), exit: Exit::Finished };
    for (run, extras) in series.runs.iter().zip(extras) {
        if session.requests.stop_asked() {
            progress.exit = Exit::Interrupted;
        }
        if progress.exit == Exit::Interrupted {
            break;
        }
        progress.add(session, series, run, extras, choice)?;
    }
    let SeriesProgress { folder, results, exit } = progress;
    // None where all of them were finished before, or none had begun.
    let mut folder = folder.map_or_else(|| SeriesFolder::open(choice, &series.settings), Ok)?;
    let summarised = folder.summarise(&series.settings.workload, &results);
    if !session.is_json() {
        let waiting = series.runs[results.len()..].iter().map(|run| run.name.as_str());
        comparison(&results, waiting).iter().for_each(|line| to_stderr(line));
    }
    let (summary, path) = (summarised?, folder.path()?);
    if session.is_json() {
        print_summary(&summary, path);
    } else {
        closing_lines(session.program, exit, path).iter().for_each(|line| to_stderr(line));
    }
    Ok(exit)
}

/// What is done of a series.
struct SeriesProgress {
    /// Opened when the first run is about to begin: until then nothing is written.
    folder: Option<SeriesFolder>,
    results: Vec<RunResult>,
    exit: Exit,
}

impl SeriesProgress {
    /// One more run.
    fn add(
        &mut self,
        session: &Session<'_>,
        series: &Series,
        run: &SeriesRun,
        extras: RunExtras<'_>,
        choice: &FolderChoice,
    ) -> Result<()> {
        let SeriesRun { name, loaded } = run;
        let title = format!("{name}: run {} of {}", self.results.len() + 1, series.runs.len());
        let place = match &mut self.folder {
            Some(folder) => folder.path()?.to_owned(),
            None => choice.path().to_owned(),
        };
        if let Some(summary) = finished(&place.join(name), &loaded.settings) {
            session.say(&format!("{title}, finished before"));
            self.results.push(RunResult { name: name.clone(), result: Ok(summary) });
            return Ok(());
        }
        session.say(&title);
        let bundle = session.build(loaded);
        let mut folder = match (self.folder.take(), &bundle) {
            (Some(folder), _) => folder,
            // What is wrong with the input of the first run is wrong with that of all.
            (None, Err(error)) if error.is_users() => return bundle.map(drop),
            (None, _) => SeriesFolder::open(choice, &series.settings)?,
        };
        let outcome = bundle.and_then(|bundle| {
            let run = folder.run(name)?;
            session.run(&bundle, Some(run), extras, |outcome| match folder.path() {
                Ok(series) if outcome.folder.starts_with(series) => series.to_owned(),
                _ => outcome.folder.clone(),
            })
        });
        self.folder = Some(folder);
        session.clear()?;
        let result = outcome.map(|outcome| outcome.summary);
        self.exit = self.exit.and(match &result {
            Ok(summary) => summary.stopped.into(),
            Err(error) => {
                tell(session.program, error);
                failure(error)
            }
        });
        self.results.push(RunResult { name: name.clone(), result: result.map_err(|error| error.to_string()) });
        Ok(())
    }
}

fn closing_lines(program: Program, exit: Exit, folder: &Path) -> Vec<String> {
    let hint = format!("hint: resume what is not finished: {}", program.resume_command(folder));
    let hint = (exit != Exit::Finished).then_some(hint);
    hint.into_iter().chain([format!("everything about these runs is in {}", folder.display())]).collect()
}

/// What came of the run in `path`, where it is finished and nothing more is asked of it now.
fn finished(path: &Path, now: &RunSettings) -> Option<Summary> {
    let choice = FolderChoice::look(path, Start::Resume).ok()?;
    let summary = choice.summary().filter(|summary| summary.stopped == RunEnding::Finished)?;
    let (_, text) = choice.settings_text().ok()?;
    let before = RunSettings::load(Some((path, &text)), &[]).ok()?.settings;
    let is_long_enough = match now.train.epochs {
        Some(epochs) => before.train.epochs.is_some_and(|before| epochs <= before),
        None => now.train.steps <= before.train.steps,
    };
    (is_long_enough && now.eval.patience == before.eval.patience).then_some(summary)
}

/// How a series ends one of whose runs failed.
fn failure(error: &TrainError) -> Exit {
    match error {
        TrainError::Line { .. } | TrainError::LineTooSmall { .. } => Exit::Line,
        TrainError::Engine(error) if error.is_oom() => Exit::Line,
        _ => Exit::Failed,
    }
}
