//! Evaluation of a checkpoint apart from training: the run's folder is only read.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use lowtide_core::{Bytes, Metrics, Record, SCHEMA, Step, Stop};
use lowtide_settings::RunSettings;
use lowtide_torch::DeviceFacts;
use lowtide_torch::cuda::AllocatorSettings;
use serde::Serialize;

use crate::best;
use crate::checkpoint;
use crate::error::{FolderProblem, Holder, Result, TrainError};
use crate::evaluate::Ended;
use crate::memory::DeviceMemory;
use crate::metrics;
use crate::prepare::{Choices, fresh_progress, new_state};
use crate::profile::Profile;
use crate::requests::Requests;
use crate::run::{Parts, Run};
use crate::run_folder::{CHECKPOINTS, CONFIG, RunFolder};
use crate::step::{State, bytes_of};
use crate::summary::EvalSummary;
use crate::tiles;
use crate::workload::Workload;

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// The newest.
    Newest,
    /// The one with the lowest loss of those that were evaluated.
    Best,
    /// The one after this step.
    Step(u64),
}

impl FromStr for CheckpointChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<CheckpointChoice, String> {
        match text {
            "newest" => Ok(CheckpointChoice::Newest),
            "best" => Ok(CheckpointChoice::Best),
            step => step
                .parse()
                .map(CheckpointChoice::Step)
                .map_err(|_| "expected newest, best or the number of a step".to_owned()),
        }
    }
}

impl fmt::Display for CheckpointChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointChoice::Newest => formatter.write_str("newest"),
            CheckpointChoice::Best => formatter.write_str("best"),
            CheckpointChoice::Step(step) => step.fmt(formatter),
        }
    }
}

/// A run whose checkpoints can be evaluated.
#[derive(Debug)]
pub struct RunToEvaluate {
    folder: PathBuf,
    checkpoint: PathBuf,
}

impl RunToEvaluate {
    /// Finds the checkpoint in the folder of a run, which may be one that trains at this moment.
    pub fn find(folder: &Path, choice: CheckpointChoice) -> Result<RunToEvaluate> {
        if !folder.join(CONFIG).is_file() {
            return Err(TrainError::Folder { path: folder.to_owned(), problem: FolderProblem::NoRun });
        }
        let all = folder.join(CHECKPOINTS);
        let found = match choice {
            CheckpointChoice::Newest => checkpoint::newest(&all),
            CheckpointChoice::Best => best::step(&all).map(|step| checkpoint::path_of(&all, step)),
            CheckpointChoice::Step(step) => {
                Some(checkpoint::path_of(&all, Step(step))).filter(|checkpoint| checkpoint.is_dir())
            }
        };
        let checkpoint = found.ok_or_else(|| TrainError::Checkpoint { problem: missing(&all, choice), path: all })?;
        Ok(RunToEvaluate { folder: folder.to_owned(), checkpoint })
    }

    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Path {
        &self.checkpoint
    }

    /// The settings that the run was started with, as text, and where that is.
    pub fn settings_text(&self) -> Result<(PathBuf, String)> {
        let path = self.folder.join(CONFIG);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(source) => Err(TrainError::File { path, source }),
        }
    }
}

fn missing(all: &Path, choice: CheckpointChoice) -> String {
    let steps: Vec<String> =
        checkpoint::complete(all).iter().map(|path| checkpoint::step_of(path).to_string()).collect();
    match (choice, steps.as_slice()) {
        (_, []) => "there is no checkpoint".to_owned(),
        (CheckpointChoice::Best, _) => "no checkpoint that is there was evaluated".to_owned(),
        (choice, _) => format!("there is no checkpoint after step {choice}, only after step {}", steps.join(", ")),
    }
}

/// What an evaluation is told.
pub struct EvalPlan<'a> {
    /// The settings, checked; those of training are of no account.
    pub settings: &'a RunSettings,
    /// The device it runs on.
    pub facts: &'a DeviceFacts,
    /// Where the CUDA allocator's settings come from.
    pub allocator: &'a AllocatorSettings,
    /// What is asked of it meanwhile.
    pub requests: &'a Requests,
}

/// What an evaluation found, in the form of `lowtide eval --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Version of the fields.
    pub schema: u32,
    /// The workload's name.
    pub workload: String,
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// The step after which it was saved.
    pub step: u64,
    /// The mean loss.
    pub loss: f64,
    /// The workload's own figures.
    pub metrics: Metrics,
    /// Figures that could not be computed, and why.
    pub metrics_missing: BTreeMap<String, String>,
    /// How frames were evaluated, for workloads with frames.
    pub eval: Option<EvalSummary>,
    /// The most memory held by tensors on the device.
    pub peak_bytes: u64,
    /// The line, where one was drawn.
    pub line_bytes: Option<u64>,
    /// Out-of-memory errors met, and answered.
    pub oom_errors: u64,
    /// How long it took.
    pub seconds: f64,
}

/// How an evaluation ended.
#[derive(Debug)]
pub enum EvalEnding {
    /// With its figures.
    Done(Box<Evaluation>),
    /// It did not fit under the line.
    Line(Stop),
    /// Somebody asked it to end.
    Interrupted,
}

/// Evaluates a checkpoint. Weights are loaded and moments are not; nothing is written.
pub fn evaluate_checkpoint(
    run: &RunToEvaluate,
    plan: EvalPlan<'_>,
    workload: &dyn Workload,
    outlook: impl FnMut(&Record),
) -> Result<EvalEnding> {
    let begun = Instant::now();
    let EvalPlan { settings, facts, allocator, requests } = plan;
    tiles::check(&settings.eval, workload)?;
    metrics::check(&settings.eval, workload)?;
    let memory = DeviceMemory::resolve(&settings.memory, facts, allocator, workload.data_reserve())?;
    let state = new_state(settings, facts, workload, &[]);
    make_room(&state, &memory)?;
    let saved = checkpoint::load_weights(&run.checkpoint, &state)?;
    let choices = Choices::of(settings, &state, None, Profile::of(facts, memory.line));
    let mut progress = fresh_progress(&choices, &memory);
    progress.step = saved.step;
    let folder = RunFolder::only_read(&run.folder);
    let parts = Parts { settings, facts, requests, memory, state, folder, progress, schedule: None };
    let mut evaluating = Run::new(parts, outlook);
    let ended = evaluating.evaluate()?;
    let (progress, memory) = (&evaluating.progress, &evaluating.memory);
    let Some(found) = progress.evaluated.as_ref().filter(|_| ended == Ended::Done) else {
        return Ok(match ended {
            Ended::Cut => EvalEnding::Interrupted,
            Ended::Stopped(stop) => EvalEnding::Line(stop),
            Ended::Done => {
                EvalEnding::Line(evaluating.now.given_up.expect("an evaluation without figures was given up"))
            }
        });
    };
    Ok(EvalEnding::Done(Box::new(Evaluation {
        schema: SCHEMA,
        workload: workload.name().to_owned(),
        checkpoint: run.checkpoint.clone(),
        step: found.step.get(),
        loss: found.loss,
        metrics: found.metrics.clone(),
        metrics_missing: progress.missing.clone(),
        eval: evaluating.eval_summary(found),
        peak_bytes: found.peak.get(),
        line_bytes: memory.line.limit().map(Bytes::get),
        oom_errors: progress.figures.oom_errors,
        seconds: begun.elapsed().as_secs_f64(),
    })))
}

/// Draws the line and refuses one that is smaller than the weights.
fn make_room(state: &State<'_>, memory: &DeviceMemory) -> Result<()> {
    memory.draw()?;
    let needed = Bytes(bytes_of(&state.parameters) + bytes_of(&state.buffers));
    match memory.roof().limit() {
        Some(line) if needed > line => Err(TrainError::LineTooSmall { holder: Holder::Weights, needed, line }),
        _ => Ok(()),
    }
}
