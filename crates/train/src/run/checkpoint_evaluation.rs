//! Evaluation of a checkpoint by itself: the run's folder is only read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use lowtide_core::{Bytes, Event, Metrics, Record, SCHEMA, Stop};
use lowtide_settings::RunSettings;
use lowtide_torch::DeviceFacts;
use lowtide_torch::cuda::AllocatorSettings;
use serde::Serialize;

use super::choices::Choices;
use crate::error::{Holder, Result, TrainError};
use crate::evaluation::{EvalOutcome, EvalSummary, Evaluator, LastEvaluation};
use crate::folder::{RunCheckpoint, checkpoint};
use crate::journal::Journal;
use crate::memory::{DeviceMemory, Injector, MemoryFigures, Monitor, Profile, Recovery};
use crate::ranks::{Shares, Team};
use crate::requests::Requests;
use crate::step::Model;
use crate::workload::Workload;

/// What an evaluation of a checkpoint is given.
pub struct EvalJob<'a> {
    /// The settings, checked; those of training are of no account.
    pub settings: &'a RunSettings,
    /// The device it runs on.
    pub facts: &'a DeviceFacts,
    /// Where the CUDA allocator's settings come from.
    pub allocator: &'a AllocatorSettings,
    /// What is asked of it meanwhile.
    pub requests: &'a Requests,
    /// Those who evaluate together.
    pub team: &'a Team,
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
    run: &RunCheckpoint,
    job: EvalJob<'_>,
    workload: &dyn Workload,
    listener: impl FnMut(&Record),
) -> Result<EvalEnding> {
    let begun = Instant::now();
    let EvalJob { settings, facts, allocator, requests, team } = job;
    Evaluator::check(settings, workload)?;
    let memory = DeviceMemory::resolve(&settings.memory, facts, allocator, workload.data_reserve())?;
    let model = Model::new(settings, facts, workload);
    memory.draw()?;
    let needed = model.weight_bytes();
    if let Some(line) = memory.roof().limit().filter(|line| needed > *line) {
        return Err(TrainError::LineTooSmall { holder: Holder::Weights, needed, line });
    }
    let loaded = checkpoint::load_weights(&run.checkpoint, workload).map_err(|error| match error {
        TrainError::Damaged { path, problem, .. } => TrainError::Damaged { path, problem, fallback: run.fallback() },
        other => other,
    })?;
    let step = loaded.progress.step;
    let most = Shares::of(settings, team, None)?.largest();
    let guard = Choices::of(settings, &model, team, most, None, Profile::of(facts, memory.line)).fresh_guard();
    let journal = Journal::new(None, listener);
    let injector = Injector::new(facts.device, team.rank(), &[]);
    let (clean, figures) = (settings.memory.clean, MemoryFigures::default());
    let mut recovery = Recovery::new(team, memory, guard, journal, injector, clean, figures);
    for message in loaded.notes.into_iter().chain(run.note()) {
        recovery.tell(Event::Note { step, message })?;
    }
    let mut evaluator = Evaluator::new(settings, requests, workload, LastEvaluation::default());
    match evaluator.evaluate(step, &model, &mut recovery)? {
        EvalOutcome::Complete => {}
        EvalOutcome::GivenUp(stop) | EvalOutcome::Line(stop) => return Ok(EvalEnding::Line(stop)),
        EvalOutcome::Interrupted => return Ok(EvalEnding::Interrupted),
    }
    let sample = Monitor::new(&settings.watch).sample(step, &recovery.memory)?;
    recovery.tell(sample)?;
    let figures = evaluator.figures_of(step).expect("an evaluation that is complete has figures");
    Ok(EvalEnding::Done(Box::new(Evaluation {
        schema: SCHEMA,
        workload: workload.name().to_owned(),
        checkpoint: run.checkpoint.clone(),
        step: step.get(),
        loss: figures.loss,
        metrics: figures.metrics.clone(),
        metrics_missing: evaluator.last.missing.clone(),
        eval: evaluator.summary(),
        peak_bytes: figures.peak.get(),
        line_bytes: recovery.memory.line.limit().map(Bytes::get),
        oom_errors: recovery.figures.oom_errors,
        seconds: begun.elapsed().as_secs_f64(),
    })))
}
