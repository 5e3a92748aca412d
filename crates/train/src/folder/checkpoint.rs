//! A checkpoint: the whole state of a run in one folder that is there completely or not at all.
//!
//! It is written under a temporary name, synced, renamed and its parent synced, so a kill at any moment leaves the one
//! before it. `model.safetensors` holds the weights alone and can be used elsewhere; `training.safetensors` holds moments
//! and random states; `state.json` holds the numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lowtide_core::{Bytes, SCHEMA};
use lowtide_torch::GradScaler;
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::Tensor;
use serde::{Deserialize, Serialize};

use super::checkpoints::STATE;
use super::progress::Progress;
use super::tensor_file;
use crate::error::{Result, TrainError};
use crate::step::State;
use crate::workload::Workload;

const MODEL: &str = "model.safetensors";
const TRAINING: &str = "training.safetensors";
const RNG_CPU: &str = "rng.cpu";
const RNG_CUDA: &str = "rng.cuda";

#[derive(Serialize, Deserialize)]
struct StateFile {
    schema: u32,
    workload: String,
    optimizer_steps: u64,
    scaler: Option<GradScaler>,
    progress: Progress,
}

/// Saves at `path`, unless it is there already; returns its size.
pub(crate) fn save(path: &Path, state: &State<'_>, progress: Progress) -> Result<Bytes> {
    if !path.is_dir() {
        lowtide_disk::write_folder(path, |partial| fill(partial, state, progress))?;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    Ok(Bytes(entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()))
}

/// Fills the weights of the workload from the checkpoint at `path`, and nothing else of it.
pub(crate) fn load_weights(path: &Path, workload: &dyn Workload) -> Result<Progress> {
    let saved = read_state(path, workload)?;
    tensor_file::read_into(&path.join(MODEL), &workload.state(), &[])?;
    Ok(saved.progress)
}

/// Fills the state from the checkpoint at `path`.
pub(crate) fn load(path: &Path, state: &mut State<'_>) -> Result<Progress> {
    let saved = read_state(path, state.model.workload)?;
    state.optimizer.allocate()?;
    let device = state.model.device;
    let rng = rng::state(device)?;
    tensor_file::read_into(&path.join(MODEL), &state.model.workload.state(), &[])?;
    // A run may go on on another device: its generator then starts from the seed.
    tensor_file::read_into(&path.join(TRAINING), &training_tensors(state, &rng), &[RNG_CUDA])?;
    rng::set_state(device, &rng)?;
    state.optimizer.steps = saved.optimizer_steps;
    // A scale is of no use where there is no fp16.
    if let (Some(scaler), Some(saved)) = (&mut state.scaler, saved.scaler) {
        *scaler = saved;
    }
    Ok(saved.progress)
}

/// The numbers of the checkpoint at `path`, which is of the same workload.
fn read_state(path: &Path, workload: &dyn Workload) -> Result<StateFile> {
    let file = path.join(STATE);
    let text = fs::read_to_string(&file).map_err(TrainError::at(&file))?;
    let wrong = |problem: String| TrainError::Checkpoint { path: file.clone(), problem };
    let saved: StateFile = serde_json::from_str(&text)
        .map_err(|error| TrainError::Damaged { path: file.clone(), problem: format!("it is damaged: {error}") })?;
    if saved.schema != SCHEMA {
        return Err(wrong(format!("its schema is {}, and this program reads {SCHEMA}", saved.schema)));
    }
    if saved.workload != workload.name() {
        return Err(wrong(format!("it is of the workload `{}`, not `{}`", saved.workload, workload.name())));
    }
    Ok(saved)
}

fn fill(folder: &Path, state: &State<'_>, progress: Progress) -> Result<()> {
    let workload = state.model.workload;
    tensor_file::write(&folder.join(MODEL), &workload.state())?;
    let rng = rng::state(state.model.device)?;
    tensor_file::write(&folder.join(TRAINING), &training_tensors(state, &rng))?;
    let file = StateFile {
        schema: SCHEMA,
        workload: workload.name().to_owned(),
        optimizer_steps: state.optimizer.steps,
        scaler: state.scaler,
        progress,
    };
    let text = serde_json::to_string_pretty(&file).expect("plain numbers and texts");
    let path = folder.join(STATE);
    fs::write(&path, text).map_err(TrainError::at(&path))
}

/// Moments and random states by name, sharing memory with the ones in use.
fn training_tensors(state: &State<'_>, rng: &RngState) -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    for (name, (first, second)) in state.moments() {
        tensors.insert(format!("exp_avg.{name}"), first.shallow_clone());
        tensors.insert(format!("exp_avg_sq.{name}"), second.shallow_clone());
    }
    tensors.insert(RNG_CPU.to_owned(), rng.cpu.shallow_clone());
    if let Some(cuda) = &rng.cuda {
        tensors.insert(RNG_CUDA.to_owned(), cuda.shallow_clone());
    }
    tensors
}
