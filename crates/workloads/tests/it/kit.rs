//! Runs of workloads on one thread of the CPU, in folders that go away.

use std::path::Path;

use lowtide_core::{Event, Line, NumericsChoice};
use lowtide_settings::{LoadedSettings, Override, RunSettings};
use lowtide_torch::cuda::{Deterministic, set_environment};
use lowtide_torch::{DeviceChoice, DeviceFacts, host, rng, start, tch};
use lowtide_train::{
    FolderChoice, Injection, Outcome, Requests, Result, Schedule, Start, Summary, Team, TrainJob, Trainer, Workload,
};
use lowtide_workloads::CATALOGUE;

pub(crate) fn open() -> DeviceFacts {
    let facts = start(DeviceChoice::Cpu).unwrap();
    // Threads that wait for work would take the time of the tests beside this one.
    tch::set_num_threads(1);
    host::set_line(Line::NONE);
    facts
}

pub(crate) fn overrides(texts: &[&str]) -> Vec<Override> {
    texts.iter().map(|text| Override::set(text).unwrap()).collect()
}

/// A configuration that comes with Lowtide, changed by `changes`.
pub(crate) fn shipped(name: &str, changes: &[&str]) -> LoadedSettings {
    let path = format!("{}/../../configs/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    RunSettings::load(Some((Path::new(&path), &text)), &overrides(changes)).unwrap()
}

/// Trains what settings ask for.
pub(crate) fn train(loaded: &LoadedSettings) -> Result<(Summary, Vec<Event>)> {
    let facts = open();
    rng::seed(facts.device, loaded.settings.seed).unwrap();
    let bundle = CATALOGUE.build(loaded, &facts)?;
    train_workload(&*bundle.workload, &bundle.settings, &facts)
}

/// Trains a workload from its start.
pub(crate) fn train_workload(
    workload: &dyn Workload,
    settings: &RunSettings,
    facts: &DeviceFacts,
) -> Result<(Summary, Vec<Event>)> {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, events) =
        train_in(&folder.path().join("run"), Start::New, workload, settings, facts, Disturbance::default());
    Ok((outcome?.summary, events))
}

/// What is done to a run from outside.
#[derive(Default)]
pub(crate) struct Disturbance {
    pub(crate) injections: Vec<Injection>,
    pub(crate) schedule: Option<Schedule>,
}

/// Trains a workload in a folder, and tells what happened whatever came of it.
pub(crate) fn train_in(
    folder: &Path,
    begin: Start,
    workload: &dyn Workload,
    settings: &RunSettings,
    facts: &DeviceFacts,
    disturbance: Disturbance,
) -> (Result<Outcome>, Vec<Event>) {
    let Disturbance { injections, schedule } = disturbance;
    let allocator = set_environment(&settings.memory.allocator, Deterministic::No);
    let (requests, team) = (Requests::default(), Team::default());
    let mut events = Vec::new();
    let outcome = FolderChoice::look(folder, begin).and_then(|folder| {
        let (allocator, requests, injections) = (&allocator, &requests, &injections);
        let choice = NumericsChoice::default();
        let (folder, team) = (Some(folder), &team);
        let job = TrainJob {
            settings,
            facts,
            allocator,
            choice,
            folder,
            team,
            requests,
            injections,
            schedule,
            profile: None,
        };
        Trainer::prepare(job, workload, |record| events.push(record.event.clone()))?.train()
    });
    host::set_line(Line::NONE);
    (outcome, events)
}
