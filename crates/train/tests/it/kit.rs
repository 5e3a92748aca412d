//! Runs of the example's model in a folder that goes away.

#[path = "../../examples/own_model/model.rs"]
mod model;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use lowtide_core::{Event, NumericsChoice};
use lowtide_settings::RunSettings;
use lowtide_torch::cuda::{Deterministic, set_environment};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{DeviceChoice, Segment, host, rng, start};
use lowtide_train::{
    Batch, FolderChoice, Injection, Metric, Mode, Outcome, Requests, Result, Schedule, Start, Team, TrainJob, Trainer,
    Workload,
};

pub(crate) use lowtide_testkit::alone;
pub(crate) use model::Curve;

pub(crate) fn settings() -> RunSettings {
    let mut settings = RunSettings::default();
    settings.train.steps = 4;
    settings.train.batch = 8;
    settings.optimizer.warmup_steps = 0;
    settings.optimizer.min_learning_rate = settings.optimizer.learning_rate;
    settings.eval.every = Some(2);
    settings.eval.batches = 1;
    settings.save.every = Some(2);
    settings
}

/// A fresh model; the same one each time.
pub(crate) fn curve(width: i64) -> Curve {
    let facts = start(DeviceChoice::Cpu).unwrap();
    host::set_line(lowtide_core::Line::NONE);
    // Threads that wait for work would take the time of the tests beside this one.
    lowtide_torch::tch::set_num_threads(1);
    rng::seed(facts.device, 1).unwrap();
    Curve::new(width)
}

/// Kind and device of the tensors that tests make.
pub(crate) const FLOATS: (Kind, Device) = (Kind::Float, Device::Cpu);

/// The example's model, with something of a test's own in its evaluation.
pub(crate) struct Hooked<'a> {
    pub(crate) curve: Curve,
    /// Called before a batch for evaluation is made.
    pub(crate) before_eval_batch: &'a dyn Fn(),
    /// The model's metrics.
    pub(crate) metrics: &'a dyn Fn() -> Vec<Metric<'a>>,
    pub(crate) eval_samples: Option<u64>,
}

impl Hooked<'_> {
    /// Nothing of its own yet.
    pub(crate) fn new(curve: Curve) -> Self {
        Hooked { curve, before_eval_batch: &|| {}, metrics: &Vec::new, eval_samples: None }
    }
}

impl Workload for Hooked<'_> {
    fn name(&self) -> &str {
        self.curve.name()
    }
    fn state(&self) -> BTreeMap<String, Tensor> {
        self.curve.state()
    }
    fn parameter_groups(&self) -> Vec<(f64, Vec<(String, Tensor)>)> {
        self.curve.parameter_groups()
    }
    fn mode(&self) -> &Mode {
        self.curve.mode()
    }
    fn segments(&self) -> &[Segment] {
        self.curve.segments()
    }
    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, chunks: NonZeroU32) -> Tensor {
        self.curve.loss_sum(outputs, batch, chunks)
    }
    fn metrics(&self) -> Vec<Metric<'_>> {
        (self.metrics)()
    }
    fn train_batch(&self, first: u64, count: u32) -> Batch {
        self.curve.train_batch(first, count)
    }
    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        (self.before_eval_batch)();
        self.curve.eval_batch(first, count)
    }
    fn eval_samples(&self) -> Option<u64> {
        self.eval_samples
    }
    fn targets_per_sample(&self) -> u64 {
        self.curve.targets_per_sample()
    }
}

/// What a run is given beside its settings.
#[derive(Default)]
pub(crate) struct RunExtras {
    pub(crate) injections: Vec<Injection>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) requests: Requests,
}

/// Trains `workload` in `folder` with these.
pub(crate) fn train_with(
    workload: &dyn Workload,
    settings: &RunSettings,
    folder: &Path,
    begin: Start,
    extras: RunExtras,
) -> (Result<Outcome>, Vec<Event>) {
    run(workload, settings, folder, begin, extras, || {})
}

/// Trains `workload` in `folder`; `disturb` is called when the run is ready.
pub(crate) fn train(
    workload: &dyn Workload,
    settings: &RunSettings,
    folder: &Path,
    begin: Start,
    disturb: impl FnOnce(),
) -> (Result<Outcome>, Vec<Event>) {
    run(workload, settings, folder, begin, RunExtras::default(), disturb)
}

fn run(
    workload: &dyn Workload,
    settings: &RunSettings,
    folder: &Path,
    begin: Start,
    extras: RunExtras,
    disturb: impl FnOnce(),
) -> (Result<Outcome>, Vec<Event>) {
    let RunExtras { injections, schedule, requests } = extras;
    let allocator = set_environment(&settings.memory.allocator, Deterministic::No);
    let facts = start(DeviceChoice::Cpu).unwrap();
    let team = Team::default();
    let mut events = Vec::new();
    let outcome = FolderChoice::look(folder, begin).and_then(|folder| {
        let job = TrainJob {
            settings,
            facts: &facts,
            allocator: &allocator,
            choice: NumericsChoice::default(),
            folder: Some(folder),
            team: &team,
            requests: &requests,
            injections: &injections,
            schedule,
            profile: None,
        };
        let run = Trainer::prepare(job, workload, |record| events.push(record.event.clone()))?;
        disturb();
        run.train()
    });
    host::set_line(lowtide_core::Line::NONE);
    (outcome, events)
}
