//! `lowtide eval`: a checkpoint evaluated by itself.

use std::path::{Path, PathBuf};

use lowtide_args::EvalArgs;
use lowtide_core::{Bytes, counted};
use lowtide_settings::{LoadedSettings, RunSettings, TileChoice};
use lowtide_train::{
    Bundle, EvalEnding, EvalMode, EvalSummary, Evaluation, FolderProblem, RunCheckpoint, SeriesFolder, Team, TrainError,
};

use crate::Program;
use crate::engine_choice::EngineChoice;
use crate::exit::Exit;
use crate::output::{print_json, to_stderr, to_stdout};
use crate::session::{Beginning, Session};
use crate::signals;

pub(crate) fn eval(program: Program, args: &EvalArgs) -> anyhow::Result<Exit> {
    let requests = signals::requests()?;
    let mut runs = Vec::new();
    for folder in folders(&args.run)? {
        let run = RunCheckpoint::find(&folder, args.checkpoint)?;
        let loaded = settings(args, &run)?;
        runs.push((run, loaded));
    }
    let (_, first) = runs.first().expect("a series has runs, and else there is one");
    let beginning = Beginning { program, args: &args.engine, requests, team: Team::default(), launch: None };
    let session = Session::start(beginning, &EngineChoice::new(&args.engine, None), &first.settings)?;
    let mut exit = Exit::Finished;
    for (run, loaded) in &runs {
        if session.requests.stop_asked() {
            return Ok(Exit::Interrupted);
        }
        exit = exit.and(evaluate(&session, run, loaded)?);
        session.clear()?;
    }
    Ok(exit)
}

fn evaluate(session: &Session<'_>, run: &RunCheckpoint, loaded: &LoadedSettings) -> anyhow::Result<Exit> {
    session.say(&format!("evaluating {}", run.checkpoint.display()));
    let bundle = session.build(loaded)?;
    match session.evaluate(&bundle, run)? {
        EvalEnding::Done(found) => {
            if session.is_json() {
                print_json(&found);
            } else {
                words(&found).iter().for_each(|line| to_stdout(line));
            }
            Ok(Exit::Finished)
        }
        EvalEnding::Line(stop) => {
            to_stderr(&format!("error: {stop}"));
            to_stderr(&format!("hint: {}", hint(&bundle)));
            Ok(Exit::Line)
        }
        EvalEnding::Interrupted => Ok(Exit::Interrupted),
    }
}

/// The folder itself, or those of the runs in a series.
fn folders(folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    if !SeriesFolder::is_at(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let runs = SeriesFolder::runs(folder)?;
    if runs.is_empty() {
        return Err(TrainError::Folder { path: folder.to_owned(), problem: FolderProblem::NoRun });
    }
    Ok(runs)
}

/// The run's own settings, then what was typed.
fn settings(args: &EvalArgs, run: &RunCheckpoint) -> Result<LoadedSettings, TrainError> {
    let (path, text) = run.settings_text()?;
    Ok(RunSettings::load(Some((&path, &text)), &args.overrides()?)?)
}

/// What can still be done where one sample at a time does not fit.
fn hint(bundle: &Bundle) -> &'static str {
    match bundle.workload.tiling() {
        Ok(_) if bundle.settings.eval.tile == TileChoice::None => {
            "evaluate frames in tiles, --set eval.tile=auto, or raise --limit"
        }
        _ => "raise --limit, or use --device cpu",
    }
}

fn words(found: &Evaluation) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(format!("  {name:<13} {value}"));
    row("step", found.step.to_string());
    row("loss", format!("{:.4}", found.loss));
    found.metrics.iter().for_each(|(name, value)| row(name, format!("{value:.4}")));
    found.metrics_missing.iter().for_each(|(name, reason)| row(name, format!("missing: {reason}")));
    if let Some(eval) = &found.eval {
        row("frames", frames(eval));
    }
    let line = found.line_bytes.map_or("no limit".to_owned(), |line| format!("limit {}", Bytes(line)));
    row("memory", format!("peak {} ({line})", Bytes(found.peak_bytes)));
    if found.oom_errors > 0 {
        let recovered = if found.metrics_missing.is_empty() { ", all recovered" } else { "" };
        row("out of memory", format!("{}{recovered}", counted(found.oom_errors, "time")));
    }
    row("time", format!("{:.1} s", found.seconds));
    rows
}

fn frames(eval: &EvalSummary) -> String {
    match (eval.mode, eval.tile) {
        (EvalMode::Tile, Some(tile)) => {
            let about = if eval.approximate { ", approximate" } else { "" };
            format!("whole, in tiles of {tile} x {tile} pixels{about}")
        }
        (EvalMode::Tile | EvalMode::Whole, _) => "whole, at once".to_owned(),
        (EvalMode::Crop, _) => "a part of each (eval.crop)".to_owned(),
    }
}
