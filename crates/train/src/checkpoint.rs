//! Checkpoints: the whole state of a run in one folder that is there completely or not at all.
//!
//! A checkpoint is written under a temporary name, synced, renamed and its parent synced, so a kill at any moment leaves
//! the one before it. `model.safetensors` holds the weights alone and can be used elsewhere; `training.safetensors` holds
//! moments and random states; `state.json` holds the numbers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, SCHEMA, Step};
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::Tensor;
use lowtide_torch::{GradScaler, ScalerRule};
use serde::{Deserialize, Serialize};

use crate::best;
use crate::error::{Result, TrainError};
use crate::progress::Progress;
use crate::step::State;
use crate::tensor_file;

const MODEL: &str = "model.safetensors";
const TRAINING: &str = "training.safetensors";
const STATE: &str = "state.json";
const RNG_CPU: &str = "rng.cpu";
const RNG_CUDA: &str = "rng.cuda";

#[derive(Serialize, Deserialize)]
struct StateFile {
    schema: u32,
    workload: String,
    optimizer_steps: u64,
    scaler: Option<ScalerFile>,
    progress: Progress,
}

#[derive(Serialize, Deserialize)]
struct ScalerFile {
    scale: f64,
    good_steps: u32,
    skipped: u64,
}

/// Saves under `folder/STEP`, unless it is there already; returns its path and size.
pub(crate) fn save(folder: &Path, state: &State<'_>, progress: &Progress) -> Result<(PathBuf, Bytes)> {
    let path = path_of(folder, progress.step);
    let partial = folder.join(format!(".{:08}.partial", progress.step.get()));
    if path.is_dir() {
        return Ok((path.clone(), size(&path)));
    }
    remove(&partial)?;
    fs::create_dir_all(&partial).map_err(|error| at(&partial, error))?;
    let written = fill(&partial, state, progress).and_then(|()| {
        sync(&partial)?;
        fs::rename(&partial, &path).map_err(|error| at(&path, error))?;
        sync(folder)
    });
    if let Err(error) = written {
        // Best effort: what is left is named as partial and never read.
        let _ = fs::remove_dir_all(&partial);
        return Err(error);
    }
    Ok((path.clone(), size(&path)))
}

/// Where the checkpoint of a step is.
pub(crate) fn path_of(folder: &Path, step: Step) -> PathBuf {
    folder.join(format!("{:08}", step.get()))
}

/// The step that a checkpoint's name says.
pub(crate) fn step_of(path: &Path) -> Step {
    Step(path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0))
}

/// Fills the weights of the state from the checkpoint at `path`, and nothing else of it.
pub(crate) fn load_weights(path: &Path, state: &State<'_>) -> Result<Progress> {
    let saved = read_state(path, state)?;
    tensor_file::read_into(&path.join(MODEL), &state.workload.state(), &[])?;
    Ok(saved.progress)
}

/// The numbers of the checkpoint at `path`, which is of the same workload.
fn read_state(path: &Path, state: &State<'_>) -> Result<StateFile> {
    let file = path.join(STATE);
    let text = fs::read_to_string(&file).map_err(|error| at(&file, error))?;
    let wrong = |problem: String| TrainError::Checkpoint { path: file.clone(), problem };
    let saved: StateFile = serde_json::from_str(&text)
        .map_err(|error| TrainError::Damaged { path: file.clone(), problem: format!("it is damaged: {error}") })?;
    if saved.schema != SCHEMA {
        return Err(wrong(format!("its schema is {}, and this program reads {SCHEMA}", saved.schema)));
    }
    if saved.workload != state.workload.name() {
        return Err(wrong(format!("it is of the workload `{}`, not `{}`", saved.workload, state.workload.name())));
    }
    Ok(saved)
}

/// Fills the state from the checkpoint at `path`.
pub(crate) fn load(path: &Path, state: &mut State<'_>) -> Result<Progress> {
    let saved = read_state(path, state)?;
    state.optimizer.allocate()?;
    let rng = rng::state(state.device)?;
    tensor_file::read_into(&path.join(MODEL), &state.workload.state(), &[])?;
    // A run may go on on another device: its generator then starts from the seed.
    tensor_file::read_into(&path.join(TRAINING), &training_tensors(state, &rng), &[RNG_CUDA])?;
    rng::set_state(state.device, &rng)?;
    state.optimizer.restore_steps(saved.optimizer_steps);
    if let (Some(scaler), Some(saved)) = (&mut state.scaler, saved.scaler) {
        *scaler = GradScaler::restored(ScalerRule::default(), saved.scale, saved.good_steps, saved.skipped);
    }
    Ok(saved.progress)
}

/// The newest checkpoint in `folder`, by its step.
pub(crate) fn newest(folder: &Path) -> Option<PathBuf> {
    complete(folder).pop()
}

/// Removes all but the newest `keep` and the best.
pub(crate) fn prune(folder: &Path, keep: u32) -> Result<()> {
    let all = complete(folder);
    let surplus = all.len().saturating_sub(keep as usize);
    let best = best::step(folder).map(|step| path_of(folder, step));
    for path in all[..surplus].iter().filter(|path| Some(*path) != best.as_ref()) {
        // Renamed first, so that a kill in between leaves no half checkpoint under a good name.
        let name = path.file_name().and_then(|name| name.to_str()).expect("complete() gives plain names");
        let old = folder.join(format!(".{name}.old"));
        remove(&old)?;
        fs::rename(path, &old).map_err(|error| at(path, error))?;
        remove(&old)?;
    }
    Ok(())
}

/// Removes what a kill left half-written or half-removed.
pub(crate) fn sweep(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(|error| at(folder, error))?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && (name.ends_with(".partial") || name.ends_with(".old")) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Every complete checkpoint, oldest first.
pub(crate) fn complete(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let step = entry.file_name().to_str()?.parse().ok()?;
            entry.path().join(STATE).is_file().then(|| (step, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn fill(partial: &Path, state: &State<'_>, progress: &Progress) -> Result<()> {
    tensor_file::write(&partial.join(MODEL), &state.workload.state())?;
    let rng = rng::state(state.device)?;
    tensor_file::write(&partial.join(TRAINING), &training_tensors(state, &rng))?;
    let file = StateFile {
        schema: SCHEMA,
        workload: state.workload.name().to_owned(),
        optimizer_steps: state.optimizer.steps(),
        scaler: state.scaler.as_ref().map(|scaler| ScalerFile {
            scale: scaler.scale(),
            good_steps: scaler.good_steps(),
            skipped: scaler.skipped(),
        }),
        progress: progress.clone(),
    };
    let text = serde_json::to_string_pretty(&file).expect("plain numbers and texts");
    let path = partial.join(STATE);
    write_synced(&path, text.as_bytes()).map_err(|error| at(&path, error))
}

/// Moments and random states by name, sharing memory with the ones in use.
fn training_tensors(state: &State<'_>, rng: &RngState) -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    for (name, (first, second)) in state.parameter_names.iter().zip(state.optimizer.moments()) {
        tensors.insert(format!("exp_avg.{name}"), first.shallow_clone());
        tensors.insert(format!("exp_avg_sq.{name}"), second.shallow_clone());
    }
    tensors.insert(RNG_CPU.to_owned(), rng.cpu.shallow_clone());
    if let Some(cuda) = &rng.cuda {
        tensors.insert(RNG_CUDA.to_owned(), cuda.shallow_clone());
    }
    tensors
}

/// Writes a file and makes sure it is on the disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

pub(crate) fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(|error| at(folder, error))
}

fn remove(folder: &Path) -> Result<()> {
    let removed = if folder.is_file() { fs::remove_file(folder) } else { fs::remove_dir_all(folder) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(folder, error)),
        _ => Ok(()),
    }
}

fn size(folder: &Path) -> Bytes {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    Bytes(entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum())
}

pub(crate) fn at(path: &Path, source: io::Error) -> TrainError {
    TrainError::File { path: path.to_owned(), source }
}
