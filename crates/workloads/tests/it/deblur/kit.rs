//! Runs of the film sharpener in a folder that goes away.

use std::path::Path;

use lowtide_core::{Event, Line};
use lowtide_settings::{LoadedSettings, Override, RunSettings};
use lowtide_torch::cuda::{Deterministic, set_environment};
use lowtide_torch::tch::Tensor;
use lowtide_torch::{DeviceChoice, DeviceFacts, host, rng, start};
use lowtide_train::{FolderChoice, Requests, Result, Start, Summary, TrainJob, Trainer, Workload};
use lowtide_workloads::build;
use lowtide_workloads::deblur::{DataSettings, ModelSettings, Source};

pub(crate) const MODEL: ModelSettings = ModelSettings { channels: 8, blocks: 2, heads: 2, window: 4 };
/// Frames that are no whole windows.
pub(crate) const DATA: DataSettings = DataSettings {
    source: Source::Synthetic,
    folder: None,
    eval_folder: None,
    eval_scenes: None,
    height: 61,
    width: 90,
    crop: 16,
    frames: 2,
    moments: 4,
    speed: 5.0,
};

pub(crate) fn open() -> DeviceFacts {
    let facts = start(DeviceChoice::Cpu).unwrap();
    lowtide_torch::tch::set_num_threads(1);
    host::set_line(Line::NONE);
    facts
}

pub(crate) fn loaded(name: &str, overrides: &[&str]) -> LoadedSettings {
    let path = format!("{}/../../configs/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let overrides: Vec<_> = overrides.iter().map(|text| Override::set(text).unwrap()).collect();
    RunSettings::load(Some((Path::new(&path), &text)), &overrides).unwrap()
}

/// Trains a workload in a folder that goes away.
pub(crate) fn run(
    workload: &dyn Workload,
    settings: &RunSettings,
    facts: &DeviceFacts,
) -> Result<(Summary, Vec<Event>)> {
    let folder = tempfile::tempdir().unwrap();
    let allocator = set_environment(&settings.memory.allocator, Deterministic::No);
    let job = TrainJob {
        settings,
        facts,
        allocator: &allocator,
        folder: FolderChoice::look(&folder.path().join("run"), Start::New).unwrap(),
        requests: &Requests::default(),
        injections: &[],
        schedule: None,
    };
    let mut events = Vec::new();
    let outcome = Trainer::prepare(job, workload, |record| events.push(record.event.clone()))?.train();
    host::set_line(Line::NONE);
    Ok((outcome?.summary, events))
}

/// Trains the tiny configuration, changed by `overrides`, on one thread of the CPU.
pub(crate) fn train(overrides: &[&str]) -> Result<(Summary, Vec<Event>)> {
    let facts = open();
    let loaded = loaded("deblur-tiny", overrides);
    rng::seed(facts.device, loaded.settings.seed).unwrap();
    let built = build(&loaded, &facts)?;
    run(&*built.workload, &built.settings, &facts)
}

/// (7 x + 13 y + 29 c + factor x y) mod 64, from 0 to 1.
pub(crate) fn image(height: i64, width: i64, factor: i64) -> Tensor {
    let values: Vec<f32> = (0..3 * height * width)
        .map(|at| (at / (height * width), at / width % height, at % width))
        .map(|(c, y, x)| ((7 * x + 13 * y + 29 * c + factor * x * y) % 64) as f32 / 63.0)
        .collect();
    Tensor::from_slice(&values).view([3, height, width])
}
