//! `lowtide train`: from what was typed to a finished run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowtide_settings::{Loaded, Override, RunSettings, read};
use lowtide_torch::cuda::{self, Deterministic};
use lowtide_torch::{MatmulPrecision, rng, set_deterministic, set_matmul_precision, start};
use lowtide_train::{FolderChoice, FolderProblem, Plan, Requests, Run, Schedule, Start, Stopped, TrainError};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;

use crate::args::TrainArgs;
use crate::exit::Ended;
use crate::head::Head;
use crate::outlook::Outlook;

/// Where runs go when no folder is named.
const RUNS: &str = "runs";

pub(crate) fn train(args: &TrainArgs) -> anyhow::Result<Ended> {
    let begin = if args.resume { Start::Resume } else { Start::New };
    let folder = FolderChoice::look(&run_folder(args)?, begin)?;
    let loaded = settings(args, &folder)?;
    let schedule = args.schedule_from.as_deref().map(Schedule::read).transpose()?;

    let deterministic = if args.deterministic { Deterministic::Yes } else { Deterministic::No };
    let allocator = cuda::set_environment(&loaded.settings.memory.allocator, deterministic);
    let requests = signals()?;
    let facts = start(args.device).map_err(TrainError::from)?;
    set_deterministic(args.deterministic)?;
    set_matmul_precision(if args.deterministic { MatmulPrecision::Highest } else { MatmulPrecision::High })?;
    rng::seed(facts.device, loaded.settings.seed)?;

    let built = lowtide_workloads::build(&loaded, facts.device)?;
    let head = Head::new(&facts, &built.settings, folder.path());
    let mut outlook = Outlook::new(args.json, built.settings.train.steps, head);
    let plan = Plan {
        settings: &built.settings,
        facts: &facts,
        allocator: &allocator,
        folder,
        requests: &requests,
        injections: &args.inject_oom,
        schedule,
    };
    let outcome = Run::prepare(plan, built.workload.as_ref(), |record| outlook.event(record))?.train()?;
    outlook.end(&outcome);
    Ok(match outcome.summary.stopped {
        Stopped::Finished => Ended::Finished,
        Stopped::Line => Ended::Line,
        Stopped::Interrupted => Ended::Interrupted,
    })
}

/// The settings: the file, or on resume the run's own, then what was typed.
fn settings(args: &TrainArgs, folder: &FolderChoice) -> anyhow::Result<Loaded> {
    let mut overrides = Vec::new();
    for text in &args.set {
        overrides.push(Override::set(text).map_err(TrainError::from)?);
    }
    for (flag, key, value) in
        [("--line", "memory.line", args.line), ("--host-line", "memory.host_line", args.host_line)]
    {
        if let Some(value) = value {
            overrides.push(Override::flag(flag, key, &value.to_string()).map_err(TrainError::from)?);
        }
    }
    let (path, text) = match &args.config {
        Some(path) => (path.clone(), read(path).map_err(TrainError::from)?),
        None => (folder.path().join("config.yaml"), folder.settings_text()?),
    };
    Ok(RunSettings::load(Some((&path, &text)), &overrides).map_err(TrainError::from)?)
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

/// SIGINT and SIGTERM end the run after the step under way, a second one at once; SIGUSR1 saves and goes on.
fn signals() -> std::io::Result<Requests> {
    let requests = Requests::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&requests.stop))?;
        flag::register(signal, Arc::clone(&requests.stop))?;
    }
    flag::register(SIGUSR1, Arc::clone(&requests.save))?;
    Ok(requests)
}
