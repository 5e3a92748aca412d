//! Trains a model of one's own: `cargo run --release -p lowtide-train --example own_model`.
//!
//! `model.rs` is what a user writes; this file is what `lowtide-engine` does for the models that come with Lowtide.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod model;

use std::error::Error;
use std::path::Path;

use lowtide_core::Event;
use lowtide_settings::RunSettings;
use lowtide_torch::cuda::{Deterministic, set_environment};
use lowtide_torch::{DeviceChoice, rng, start};
use lowtide_train::{FolderChoice, Requests, Start, Team, TrainJob, Trainer};

use crate::model::Curve;

fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = RunSettings::default();
    settings.train.steps = 500;
    settings.optimizer.learning_rate = 0.01;
    settings.memory.line = "28KiB".parse()?;

    let allocator = set_environment(&settings.memory.allocator, Deterministic::No);
    let facts = start(DeviceChoice::Cpu)?;
    rng::seed(facts.device, settings.seed)?;
    let curve = Curve::new(64);

    let folder = std::env::temp_dir().join(format!("own-model-{}", std::process::id()));
    let folder = FolderChoice::look(Path::new(&folder), Start::New)?;
    let (requests, team) = (Requests::default(), Team::default());
    let job = TrainJob {
        settings: &settings,
        facts: &facts,
        allocator: &allocator,
        choice: lowtide_core::NumericsChoice::default(),
        folder: Some(folder),
        team: &team,
        requests: &requests,
        injections: &[],
        schedule: None,
        profile: None,
    };
    let tell = |record: &lowtide_core::Record| match &record.event {
        Event::RungTaken { step, measures, .. } => println!("step {step}: memory ran out, so now {measures}"),
        Event::Evaluated { step, loss, .. } => println!("step {step}: loss {loss:.4}"),
        _ => {}
    };
    let outcome = Trainer::prepare(job, &curve, tell)?.train()?;
    println!("{:?} in {}", outcome.summary.stopped, outcome.folder.display());
    Ok(())
}
