//! `lowtide train`: from what was typed to a finished run.

use std::path::{Path, PathBuf};

use lowtide_args::TrainArgs;
use lowtide_core::Numerics;
use lowtide_settings::{LoadedSettings, SettingsError, read};
use lowtide_torch::RanksError;
use lowtide_train::{
    Catalogue, CheckpointChoice, FolderChoice, FolderProblem, Schedule, Series, SeriesFolder, SeriesRun, Start, Team,
    TrainError,
};

use crate::Program;
use crate::engine_choice::EngineChoice;
use crate::exit::Exit;
use crate::front;
use crate::launch::{Launch, parent};
use crate::memory_recording::{self, recorded};
use crate::output::speak_as;
use crate::ranks;
use crate::series;
use crate::session::{Beginning, RunExtras, Session};
use crate::signals;

/// Where runs go when no folder is named.
const RUNS: &str = "runs";

pub(crate) fn train(program: Program, args: &TrainArgs) -> anyhow::Result<Exit> {
    if args.watch.is_some() || args.ranks.is_some() {
        return Err(front::hand_over());
    }
    let requests = signals::requests()?;
    if !parent::is_there() {
        return Ok(Exit::Interrupted);
    }
    let launch = Launch::of_environment().map_err(|error| RanksError::Unplaced(format!("{error:#}")));
    let launch = launch.map_err(TrainError::from)?;
    let rank = launch.as_ref().map_or(0, |launch| launch.rank);
    speak_as(rank);
    let opened = if rank == 0 { open(program.catalogue, args, launch.as_ref()).map(Some) } else { Ok(None) };
    let (folder, own) = match opened {
        Ok(Some((folder, source))) => (Some(folder), Ok(Some(source))),
        // Another rank reads the file that it was given, and where there is none takes what the first has.
        Ok(None) => (None, args.config.as_deref().map(|path| source(program.catalogue, args, path)).transpose()),
        Err(error) => (None, Err(error)),
    };
    let team = match launch.as_ref().filter(|launch| launch.world > 1) {
        Some(launch) => ranks::meet(launch, own.as_ref().ok().and_then(Option::as_ref).map(|own| &own.0.settings))?,
        None => Team::default(),
    };
    let loaded = ranks::common_settings(&team, own, |path, text| Ok(args.settings(path, text)?))?;
    let series = team.settle("reading the settings", program.catalogue.series(&loaded))?;
    let is_series = |series: &Series| {
        series.runs.len() > 1 || folder.as_ref().is_some_and(|folder| SeriesFolder::is_at(folder.path()))
    };
    let beginning = Beginning { program, args: &args.engine, requests, team, launch };
    if let Some(series) = series.filter(is_series) {
        anyhow::ensure!(
            args.checkpoint == CheckpointChoice::Newest,
            "--checkpoint is for one run: name the folder of that run in the series with --out"
        );
        anyhow::ensure!(args.record_memory.is_none(), "--record-memory is for one run, and these are several");
        let names = series.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ");
        match folder {
            Some(folder) if beginning.team.is_alone() => return train_series(args, &series, &folder, beginning),
            _ => {
                let problem = format!("several ranks train one run at a time, and these are several: {names}");
                return Err(TrainError::from(SettingsError::refused("workload", problem, &loaded.origins)).into());
            }
        }
    }
    let schedule = args.schedule_from.as_deref().map(Schedule::read).transpose();
    let schedule = beginning.team.settle("reading a schedule", schedule)?;
    let before = beginning.team.of_first("reading the settings", Some(folder.as_ref().and_then(numerics_of)))?;
    let choice = EngineChoice::new(&args.engine, before.as_ref());
    let session = Session::start(beginning, &choice, &loaded.settings)?;
    let recording = args.record_memory.as_deref().filter(|_| rank == 0);
    session.team.settle("looking where memory is recorded", recording.map_or(Ok(()), memory_recording::check))?;
    let device = session.device();
    let run = || {
        let bundle = ranks::build(&session.team, &session, &loaded)?;
        let extras = RunExtras { schedule, injections: &args.inject_oom, profile: args.profile };
        let outcome = session.run(&bundle, folder, extras, |outcome| outcome.folder.clone())?;
        session.team.disband();
        Ok(outcome.summary.stopped.into())
    };
    match recording {
        Some(path) => recorded(path, device, run),
        None => run(),
    }
}

/// The settings with the file that they come from.
type Source = (LoadedSettings, PathBuf, String);

/// The folder of the run, and its settings. A group of ranks that was started again goes on.
fn open(catalogue: Catalogue, args: &TrainArgs, launch: Option<&Launch>) -> Result<(FolderChoice, Source), TrainError> {
    let path = run_folder(args)?;
    let begin = if args.resume { Start::Resume } else { Start::New };
    let folder = match FolderChoice::look(&path, begin) {
        Err(TrainError::Folder { problem: FolderProblem::HasRun, .. }) if launch.is_some_and(Launch::is_restart) => {
            FolderChoice::look(&path, Start::Resume)?
        }
        folder => folder?.from_checkpoint(args.checkpoint),
    };
    let source = match &args.config {
        Some(path) => source(catalogue, args, path)?,
        None => {
            let (path, text) = folder.settings_text()?;
            (args.settings(&path, &text)?, path, text)
        }
    };
    Ok((folder, source))
}

/// The settings of a file, with what was typed over them.
fn source(catalogue: Catalogue, args: &TrainArgs, path: &Path) -> Result<Source, TrainError> {
    let text = configuration(catalogue, path)?;
    Ok((args.settings(path, &text)?, path.to_owned(), text))
}

/// Each run of a series follows the schedule of the run of its name.
fn train_series(
    args: &TrainArgs,
    series: &Series,
    folder: &FolderChoice,
    beginning: Beginning<'_>,
) -> anyhow::Result<Exit> {
    let schedule = |run: &SeriesRun| args.schedule_from.as_ref().map(|path| Schedule::read(&path.join(&run.name)));
    let schedules = series.runs.iter().map(|run| schedule(run).transpose()).collect::<Result<Vec<_>, _>>()?;
    let injections = &args.inject_oom;
    let extras =
        schedules.into_iter().map(|schedule| RunExtras { schedule, injections, profile: args.profile }).collect();
    let before = match folder.start() {
        Start::New => None,
        Start::Resume => series
            .runs
            .iter()
            .find_map(|run| FolderChoice::look(&folder.path().join(&run.name), Start::Resume).ok()?.numerics()),
    };
    let choice = EngineChoice::new(&args.engine, before.as_ref());
    let session = Session::start(beginning, &choice, &series.settings)?;
    series::train(&session, series, extras, folder)
}

/// What decided the bits of a run that goes on.
fn numerics_of(folder: &FolderChoice) -> Option<Numerics> {
    folder.numerics().filter(|_| folder.start() == Start::Resume)
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
fn run_folder(args: &TrainArgs) -> Result<PathBuf, TrainError> {
    if let Some(out) = &args.out {
        return Ok(out.clone());
    }
    let runs = Path::new(RUNS);
    let Some(config) = &args.config else {
        let problem = FolderProblem::NothingToResume;
        return Err(TrainError::Folder { path: runs.to_owned(), problem });
    };
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy());
    let numbered = |number: u32| runs.join(format!("{name}-{number}"));
    let free = (1..).find(|number| !numbered(*number).exists()).expect("there are enough numbers");
    if args.resume && free > 1 { Ok(numbered(free - 1)) } else { Ok(numbered(free)) }
}
