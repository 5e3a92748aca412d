//! `lowtide train`: from what was typed to a finished run.

use std::path::{Path, PathBuf};

use lowtide_args::TrainArgs;
use lowtide_core::Numerics;
use lowtide_settings::{LoadedSettings, read};
use lowtide_train::{
    Catalogue, CheckpointChoice, FolderChoice, FolderProblem, Requests, Schedule, Series, SeriesFolder, SeriesRun,
    Start, TrainError,
};

use crate::Program;
use crate::engine_choice::EngineChoice;
use crate::exit::Exit;
use crate::front;
use crate::series;
use crate::session::{RunExtras, Session};
use crate::signals;

/// Where runs go when no folder is named.
const RUNS: &str = "runs";

pub(crate) fn train(program: Program, args: &TrainArgs) -> anyhow::Result<Exit> {
    if args.watch.is_some() {
        return Err(front::hand_over());
    }
    let requests = signals::requests()?;
    let begin = if args.resume { Start::Resume } else { Start::New };
    let folder = FolderChoice::look(&run_folder(args)?, begin)?.from_checkpoint(args.checkpoint);
    let loaded = settings(program.catalogue, args, &folder)?;
    if let Some(series) = program.catalogue.series(&loaded)?
        && (series.runs.len() > 1 || SeriesFolder::is_at(folder.path()))
    {
        anyhow::ensure!(
            args.checkpoint == CheckpointChoice::Newest,
            "--checkpoint is for one run: name the folder of that run in the series with --out"
        );
        return train_series(program, args, &series, &folder, requests);
    }
    let schedule = args.schedule_from.as_deref().map(Schedule::read).transpose()?;
    let choice = EngineChoice::new(&args.engine, numerics_of(&folder).as_ref());
    let session = Session::start(program, &args.engine, &choice, &loaded.settings, requests)?;
    let bundle = session.build(&loaded)?;
    let extras = RunExtras { schedule, injections: &args.inject_oom };
    let outcome = session.run(&bundle, folder, extras, |outcome| outcome.folder.clone())?;
    Ok(outcome.summary.stopped.into())
}

/// Each run of a series follows the schedule of the run of its name.
fn train_series(
    program: Program,
    args: &TrainArgs,
    series: &Series,
    folder: &FolderChoice,
    requests: Requests,
) -> anyhow::Result<Exit> {
    let schedule = |run: &SeriesRun| args.schedule_from.as_ref().map(|path| Schedule::read(&path.join(&run.name)));
    let schedules = series.runs.iter().map(|run| schedule(run).transpose()).collect::<Result<Vec<_>, _>>()?;
    let injections = &args.inject_oom;
    let extras = schedules.into_iter().map(|schedule| RunExtras { schedule, injections }).collect();
    let before = match folder.start() {
        Start::New => None,
        Start::Resume => series
            .runs
            .iter()
            .find_map(|run| FolderChoice::look(&folder.path().join(&run.name), Start::Resume).ok()?.numerics()),
    };
    let choice = EngineChoice::new(&args.engine, before.as_ref());
    let session = Session::start(program, &args.engine, &choice, &series.settings, requests)?;
    series::train(&session, series, extras, folder)
}

/// What decided the bits of a run that goes on.
fn numerics_of(folder: &FolderChoice) -> Option<Numerics> {
    folder.numerics().filter(|_| folder.start() == Start::Resume)
}

/// The settings: the file, or on resume the run's own, then what was typed.
fn settings(catalogue: Catalogue, args: &TrainArgs, folder: &FolderChoice) -> Result<LoadedSettings, TrainError> {
    let (path, text) = match &args.config {
        Some(path) => (path.clone(), configuration(catalogue, path)?),
        None => folder.settings_text()?,
    };
    Ok(args.settings(&path, &text)?)
}

/// The text of the file, or of the configuration that comes with the workload of that name.
fn configuration(catalogue: Catalogue, path: &Path) -> Result<String, TrainError> {
    let built_in = path.to_str().filter(|_| !path.exists()).and_then(|name| catalogue.example(name));
    match built_in {
        Some(text) => Ok(text.to_owned()),
        None => Ok(read(path)?),
    }
}

/// The folder that was named, or one under `runs/` after the configuration's name.
fn run_folder(args: &TrainArgs) -> anyhow::Result<PathBuf> {
    if let Some(out) = &args.out {
        return Ok(out.clone());
    }
    let runs = Path::new(RUNS);
    let Some(config) = &args.config else {
        let problem = FolderProblem::NothingToResume;
        return Err(TrainError::Folder { path: runs.to_owned(), problem }.into());
    };
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy());
    let numbered = |number: u32| runs.join(format!("{name}-{number}"));
    let free = (1..).find(|number| !numbered(*number).exists()).expect("there are enough numbers");
    if args.resume && free > 1 { Ok(numbered(free - 1)) } else { Ok(numbered(free)) }
}
