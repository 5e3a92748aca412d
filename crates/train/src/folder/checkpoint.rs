//! A checkpoint: the whole state of a run in one folder that is there completely or not at all.
//!
//! It is written under a temporary name, synced, renamed and its parent synced, so a kill at any moment leaves the one
//! before it. `model.safetensors` holds the weights alone and can be used elsewhere; `training.safetensors` holds moments
//! and random states; `state.json` holds the numbers.
//!
//! No bit of it changes unnoticed: `state.json` has a seal, and in it are length and checksum of the other two, taken while
//! they were written and compared while they are read. Its schema says that they are there: one bit makes no 1 of a 2.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use lowtide_core::{Bytes, Numerics, Seal, sealed};
use lowtide_torch::GradScaler;
use lowtide_torch::rng::{self, RngState};
use lowtide_torch::tch::Tensor;
use serde::{Deserialize, Serialize};

use super::checkpoints::STATE;
use super::file_sum::FileSum;
use super::progress::Progress;
use super::tensor_file::{self, into_itself, itself};
use crate::error::{Result, TrainError};
use crate::ranks::{MomentId, MomentOrder, Team};
use crate::step::State;
use crate::workload::Workload;

const MODEL: &str = "model.safetensors";
const TRAINING: &str = "training.safetensors";
const RNG_CPU: &str = "rng.cpu";
const RNG_CUDA: &str = "rng.cuda";

/// The version of [`StateFile`]: since 2 it has a seal and the sums of the other files.
const SCHEMA: u32 = 2;
/// The one before. Such checkpoints can be used, and not be checked.
const WITHOUT_SUMS: u32 = 1;
/// More bytes than a file of numbers ever has.
const MOST_STATE: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct StateFile {
    schema: u32,
    workload: String,
    optimizer_steps: u64,
    scaler: Option<GradScaler>,
    /// The sums of the other files.
    #[serde(default)]
    files: BTreeMap<String, FileSum>,
    /// Bytes of `events.jsonl` before it was saved.
    #[serde(default)]
    events_bytes: u64,
    progress: Progress,
}

/// What was read of a checkpoint beside tensors.
pub(crate) struct Loaded {
    pub(crate) progress: Progress,
    /// Bytes that `events.jsonl` had, where that was noted.
    pub(crate) events_bytes: u64,
    /// What a person should know of it.
    pub(crate) notes: Vec<String>,
}

/// Saves at `path`, unless it is there already; returns its size. Moments that other ranks hold are asked for meanwhile.
pub(crate) fn save(
    path: &Path,
    state: &State<'_>,
    team: &Team,
    progress: Progress,
    events_bytes: u64,
) -> Result<Bytes> {
    if !path.is_dir() {
        lowtide_disk::write_folder(path, |partial| fill(partial, state, team, progress, events_bytes))?;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    Ok(Bytes(entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()))
}

/// Fills the weights of the workload from the checkpoint at `path`, and nothing else of it.
pub(crate) fn load_weights(path: &Path, workload: &dyn Workload) -> Result<Loaded> {
    let saved = read_state(path, workload)?;
    tensor_file::read_into(&path.join(MODEL), &workload.state(), &[], saved.sum_of(MODEL), into_itself)?;
    Ok(saved.loaded(path))
}

/// Fills the state from the checkpoint at `path`. Other ranks are given the moments that they hold.
pub(crate) fn load(path: &Path, state: &mut State<'_>, team: &Team) -> Result<Loaded> {
    let saved = read_state(path, state.model.workload)?;
    state.optimizer.allocate()?;
    let device = state.model.device;
    let rng = rng::state(device)?;
    let weights = state.model.workload.state();
    tensor_file::read_into(&path.join(MODEL), &weights, &[], saved.sum_of(MODEL), into_itself)?;
    // A run may go on on another device: its generator then starts from the seed.
    let sum = saved.sum_of(TRAINING);
    let parted = parted_moments(state);
    let put = |name: &str, target: &Tensor, value: &Tensor| match (parted.get(name), &state.shards, team.ranks()) {
        (Some(id), Some(shards), Some(ranks)) => shards.distribute(*id, value, &state.optimizer, ranks),
        _ => into_itself(name, target, value),
    };
    tensor_file::read_into(&path.join(TRAINING), &training_tensors(state, &rng), &[RNG_CUDA], sum, put)?;
    rng::set_state(device, &rng)?;
    state.optimizer.steps = saved.optimizer_steps;
    // A scale is of no use where there is no fp16.
    if let (Some(scaler), Some(saved)) = (&mut state.scaler, saved.scaler) {
        *scaler = saved;
    }
    Ok(saved.loaded(path))
}

/// Whether every file of the checkpoint at `path` is as it was written, as far as that can be known.
pub(crate) fn is_whole(path: &Path) -> bool {
    let is_whole = |saved: &StateFile, file: &str| match saved.sum_of(file) {
        Some(sum) => FileSum::of(&path.join(file)).is_ok_and(|found| sum.check(&found).is_ok()),
        None => path.join(file).is_file(),
    };
    read_numbers(path).is_ok_and(|saved| [MODEL, TRAINING].iter().all(|file| is_whole(&saved, file)))
}

impl StateFile {
    fn sum_of(&self, file: &str) -> Option<&FileSum> {
        self.files.get(file)
    }

    fn loaded(self, path: &Path) -> Loaded {
        let old =
            || format!("{} was written by an older version, without checksums: it cannot be checked", name_of(path));
        let notes = (self.schema == WITHOUT_SUMS).then(old).into_iter().collect();
        Loaded { progress: self.progress, events_bytes: self.events_bytes, notes }
    }
}

fn name_of(path: &Path) -> String {
    format!("checkpoint {}", path.file_name().unwrap_or_default().display())
}

/// What decided the bits when the checkpoint at `path` was written, where that can be read. What is wrong with the file is
/// said when it is loaded.
pub(super) fn numerics(path: &Path) -> Option<Numerics> {
    read_numbers(path).ok()?.progress.numerics
}

/// The numbers of the checkpoint at `path`, which is of the same workload.
fn read_state(path: &Path, workload: &dyn Workload) -> Result<StateFile> {
    let saved = read_numbers(path)?;
    if saved.workload != workload.name() {
        let problem = format!("it is of the workload `{}`, not `{}`", saved.workload, workload.name());
        return Err(TrainError::Checkpoint { path: path.join(STATE), problem });
    }
    Ok(saved)
}

fn read_numbers(path: &Path) -> Result<StateFile> {
    let file = path.join(STATE);
    let damaged = |problem: &str| TrainError::damaged(&file, problem.to_owned());
    let text = lowtide_disk::read_text(&file, MOST_STATE).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => damaged("it is damaged: it is no text"),
        _ => TrainError::at(&file)(error),
    })?;
    let seal = Seal::of(text.as_bytes());
    if seal == Seal::Broken {
        return Err(damaged("it was changed after it was written: its checksum is wrong"));
    }
    let saved: StateFile = serde_json::from_str(&text).map_err(|error| damaged(&format!("it is damaged: {error}")))?;
    match (saved.schema, seal) {
        (SCHEMA, Seal::Whole) if [MODEL, TRAINING].iter().all(|name| saved.files.contains_key(*name)) => Ok(saved),
        (SCHEMA, _) => Err(damaged("it is damaged: its checksums are missing")),
        (WITHOUT_SUMS, Seal::Missing) if saved.files.is_empty() => Ok(saved),
        (WITHOUT_SUMS, _) => Err(damaged("it is damaged: its schema is wrong")),
        (other, _) => {
            let problem = format!("its schema is {other}, and this program reads up to {SCHEMA}");
            Err(TrainError::Checkpoint { path: file, problem })
        }
    }
}

fn fill(folder: &Path, state: &State<'_>, team: &Team, progress: Progress, events_bytes: u64) -> Result<()> {
    let workload = state.model.workload;
    let model = tensor_file::write(&folder.join(MODEL), &workload.state(), itself)?;
    let rng = rng::state(state.model.device)?;
    let parted = parted_moments(state);
    let value = |name: &str, tensor: &Tensor| match (parted.get(name), &state.shards, team.ranks()) {
        (Some(id), Some(shards), Some(ranks)) => shards.collect(*id, &state.optimizer, ranks),
        _ => itself(name, tensor),
    };
    let training = tensor_file::write(&folder.join(TRAINING), &training_tensors(state, &rng), value)?;
    let file = StateFile {
        schema: SCHEMA,
        workload: workload.name().to_owned(),
        optimizer_steps: state.optimizer.steps,
        scaler: state.scaler,
        files: [(MODEL, model), (TRAINING, training)].map(|(name, sum)| (name.to_owned(), sum)).into(),
        events_bytes,
        progress,
    };
    let text = sealed(serde_json::to_string_pretty(&file).expect("plain numbers and texts"));
    let path = folder.join(STATE);
    fs::write(&path, text).map_err(TrainError::at(&path))
}

/// What a moment is called.
fn name_of_moment(order: MomentOrder, parameter: &str) -> String {
    match order {
        MomentOrder::First => format!("exp_avg.{parameter}"),
        MomentOrder::Second => format!("exp_avg_sq.{parameter}"),
    }
}

/// The moments by name, where ranks have divided them.
fn parted_moments(state: &State<'_>) -> BTreeMap<String, MomentId> {
    let names = state.shards.iter().flat_map(|_| state.parameter_names.iter().enumerate());
    let both = |(parameter, name): (usize, &String)| {
        [MomentOrder::First, MomentOrder::Second]
            .map(|order| (name_of_moment(order, name), MomentId { parameter, order }))
    };
    names.flat_map(both).collect()
}

/// Moments and random states by name, sharing memory with the ones in use. For moments that ranks have divided, their parameters stand,
/// which are of the same kind and shape.
fn training_tensors(state: &State<'_>, rng: &RngState) -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    let stand_ins = state.shards.iter().flat_map(|_| state.model.parameters.iter().map(|tensor| (tensor, tensor)));
    let moments = state.shards.is_none().then(|| state.optimizer.moments()).into_iter().flatten();
    for (name, (first, second)) in state.parameter_names.iter().zip(stand_ins.chain(moments)) {
        tensors.insert(name_of_moment(MomentOrder::First, name), first.shallow_clone());
        tensors.insert(name_of_moment(MomentOrder::Second, name), second.shallow_clone());
    }
    tensors.insert(RNG_CPU.to_owned(), rng.cpu.shallow_clone());
    if let Some(cuda) = &rng.cuda {
        tensors.insert(RNG_CUDA.to_owned(), cuda.shallow_clone());
    }
    tensors
}
