//! The workload `scoring`: one of its models, its items, and how the loop sees them. A sample is an item.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use lowtide_core::{Bytes, Line, LineSpec};
use lowtide_data::SaveIndex;
use lowtide_generators::traces::Item;
use lowtide_generators::traces::SyntheticItems;
use lowtide_settings::{LoadedSettings, Origins, RunSettings, SettingsError, typed};
use lowtide_tensorfile::DecodeLimit;
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{DeviceFacts, Segment, attempt, gradients, host, refuse_input, rng};
use lowtide_train::{Batch, CacheSummary, Holder, Metric, Mode, PartOf, Result, TrainError, Workload};

use super::batch::{Collated, collate};
use super::item::{Items, Widths};
use super::item_shards::ItemShards;
use super::metrics::agreement;
use super::model::Model;
use super::room::{Needs, Process, Room};
use super::set::{Files, InMemory, ItemStore, Parts};
use super::settings::{DataSettings, Load, ModelName, ModelSettings, Source};
use super::supply::{Course, Supply};
use crate::ahead::Ahead;

/// One of the models on its items.
pub struct Scoring {
    name: ModelName,
    model: Model,
    mode: Mode,
    supply: Supply,
    /// The next batch; what is wrong with it is told when it is asked for.
    ahead: Ahead<Option<Collated>>,
    widths: Widths,
    reserve: Bytes,
    device: Device,
}

impl Scoring {
    /// Builds the one model that the settings name; returns them with its own defaults and choices filled in, and what a
    /// person should know before it trains.
    pub(crate) fn build(loaded: &LoadedSettings, facts: &DeviceFacts) -> Result<(Scoring, RunSettings, Vec<String>)> {
        let (model, settings) = checked_settings(loaded)?;
        let data: DataSettings = typed(&settings.data, "data", &loaded.origins)?;
        if model.run.len() != 1 {
            let problem = "several models are several runs, and this is one".to_owned();
            return Err(SettingsError::refused("model.run", problem, &loaded.origins).into());
        }
        let refused = |(key, problem)| SettingsError::refused(key, problem, &loaded.origins);
        let builder = Builder { model, data, settings, facts, origins: &loaded.origins };
        match (builder.data.source, builder.data.load) {
            (Source::Generated, _) => {
                let items = SyntheticItems { seed: builder.settings.seed, count: builder.data.count };
                builder.on(ItemShards::new(Box::new(items)))
            }
            (Source::Files, Load::Feed) => {
                let files = Files::open(&builder.data, builder.limit()?, SaveIndex::Always).map_err(refused)?;
                builder.on(files)
            }
            (Source::Files, Load::Whole) => {
                let files = Files::open(&builder.data, builder.limit()?, SaveIndex::Always).map_err(refused)?;
                builder.affords_all(&files)?;
                let all = InMemory::load(files, builder.data.on_damage);
                let all = all.map_err(|error| refused(("data", error.to_string())))?;
                builder.on(all)
            }
        }
    }

    /// A fresh model on these items, which are trained on in the order of the settings' seed.
    pub fn on(
        model: &ModelSettings,
        items: Box<dyn Items>,
        settings: &RunSettings,
        facts: &DeviceFacts,
    ) -> Result<Scoring> {
        let (data, origins) = (DataSettings::default(), Origins::default());
        let builder = Builder { model: model.clone(), data, settings: settings.clone(), facts, origins: &origins };
        builder.on(ItemShards::new(items)).map(|(scoring, ..)| scoring)
    }

    /// The batch of these items; one that is no good ends the enclosing attempt.
    fn batch(&self, items: &[Arc<Item>]) -> Batch {
        let collated = checked(items, self.widths, self.name).unwrap_or_else(|problem| refuse_input(problem));
        collated.into_batch(self.device)
    }
}

/// These items as a batch of plain numbers, if all of them are good.
fn checked(items: &[Arc<Item>], widths: Widths, name: ModelName) -> Result<Collated, String> {
    items.iter().try_for_each(|item| widths.check(item))?;
    Ok(Collated::of(items, widths, name))
}

/// What a workload is built from.
struct Builder<'a> {
    model: ModelSettings,
    data: DataSettings,
    settings: RunSettings,
    facts: &'a DeviceFacts,
    origins: &'a Origins,
}

impl Builder<'_> {
    fn on<S: ItemStore>(self, store: S) -> Result<(Scoring, RunSettings, Vec<String>)> {
        let Builder { model, data, settings, facts, origins } = self;
        let name = model.run[0];
        let batch = settings.train.batch;
        let parts = Parts::of(store, settings.eval.batches.saturating_mul(batch.into()));
        if parts.counts().contains(&0) {
            let [train, eval] = parts.counts();
            let problem = if parts.unscored > 0 {
                format!("{} samples are not in the table of scores, and too few are left", parts.unscored)
            } else {
                format!("there are {train} items to train on and {eval} to evaluate on: both must have some")
            };
            return Err(SettingsError::refused("data", problem, origins).into());
        }
        let data = with_fingerprint(data, &parts.fingerprint(), origins)?;
        let settings = with_epochs(settings, parts.counts()[0], origins)?;
        let (widths, largest) = attempt(|| {
            let [first, largest] = parts.examples(data.on_damage).unwrap_or_else(|problem| refuse_input(problem));
            let widths = Widths::of(&first).unwrap_or_else(|problem| {
                refuse_input(format!("item `{}`: {problem}", first.id));
            });
            (widths, largest)
        })?;
        let mode = Mode::default();
        let network = attempt(|| Model::new(name, &model, widths, &mode, facts.device))?;
        let host_line = resolved(&settings, facts, origins)?;
        let tensors = match host_line.limit() {
            Some(line) => warm_up((name, &network), &largest, widths, batch, facts.device, line)?,
            None => Bytes::ZERO,
        };
        let process = Process {
            host_line,
            machine: facts.host_total,
            base: host::resident_without_tensors(),
            tensors,
            store: parts.store.held(),
            batch,
            is_ahead: facts.device.is_cuda(),
        };
        let needs = [Needs::of(&*parts.train), Needs::of(&*parts.eval)];
        // All of it is in memory already, where the base has it.
        let is_loaded = data.source == Source::Files && data.load == Load::Whole;
        let room = match is_loaded {
            true => Room::for_all(&needs[0], &needs[1]),
            false => Room::find(&needs[0], &needs[1], data.cache_batches, &process).map_err(|little| {
                TrainError::LineTooSmall { holder: Holder::Data, needed: little.needed, line: little.line }
            })?,
        };
        let course = Course { seed: settings.seed, samples: settings.train.steps.saturating_mul(batch.into()) };
        let (supply, data, notes) = Supply::begin(&parts, &data, &room, &needs[0], course);
        let settings = RunSettings { data: serde_json::to_value(data).expect("plain values"), ..settings };
        let reserve = if is_loaded { Bytes::ZERO } else { room.bytes() };
        let (ahead, device) = (Ahead::default(), facts.device);
        let scoring = Scoring { name, model: network, mode, supply, ahead, widths, reserve, device };
        Ok((scoring, settings, notes))
    }

    /// What a file may decode to.
    fn limit(&self) -> Result<DecodeLimit> {
        let host_line = resolved(&self.settings, self.facts, self.origins)?;
        Ok(self.data.limit(host_line, self.facts.host_total))
    }

    /// Refuses to load more than the host line has room for.
    fn affords_all(&self, files: &Files) -> Result<()> {
        let Some(line) = resolved(&self.settings, self.facts, self.origins)?.limit() else { return Ok(()) };
        let needed = host::resident_without_tensors().saturating_add(Needs::of(files).most());
        if needed < line {
            return Ok(());
        }
        Err(TrainError::LineTooSmall { holder: Holder::Data, needed, line })
    }
}

/// The settings with what follows from the data: its fingerprint, and steps where epochs are asked for.
pub(crate) fn with_data(settings: RunSettings, origins: &Origins) -> Result<RunSettings, SettingsError> {
    let data: DataSettings = typed(&settings.data, "data", origins)?;
    let (fingerprint, counts) = match data.source {
        Source::Generated => {
            let items = SyntheticItems { seed: settings.seed, count: data.count };
            let parts = Parts::of(ItemShards::new(Box::new(items)), 0);
            (parts.fingerprint(), parts.counts())
        }
        Source::Files => {
            // Of a share of the machine nothing is known here; the run itself is held to it.
            let host_line = match settings.memory.host_line {
                LineSpec::Size(size) => Line::at(size).unwrap_or(Line::NONE),
                LineSpec::None | LineSpec::Share(_) => Line::NONE,
            };
            let limit = data.limit(host_line, Bytes::MAX);
            let files =
                // What was wrong with a saved index is told by the run itself.
                Files::open(&data, limit, SaveIndex::WhereNone).map_err(|(key, problem)| SettingsError::refused(key, problem, origins))?;
            let parts = Parts::of(files, 0);
            (parts.fingerprint(), parts.counts())
        }
    };
    let data = with_fingerprint(data, &fingerprint, origins)?;
    let settings = RunSettings { data: serde_json::to_value(data).expect("plain values"), ..settings };
    with_epochs(settings, counts[0], origins)
}

/// Notes the fingerprint, or refuses a set that has another than the run began with: its order is another.
fn with_fingerprint(data: DataSettings, found: &str, origins: &Origins) -> Result<DataSettings, SettingsError> {
    match &data.fingerprint {
        Some(noted) if noted != found => {
            let problem =
                "the files or samples are not those that the run began with: put them back, or begin a new run";
            Err(SettingsError::refused("data.fingerprint", problem.to_owned(), origins))
        }
        _ => Ok(DataSettings { fingerprint: Some(found.to_owned()), ..data }),
    }
}

/// Steps, evaluations and checkpoints by passes over the data, where those are asked for.
///
/// What was typed comes before what a file says, and typing both is a contradiction.
fn with_epochs(mut settings: RunSettings, samples: u64, origins: &Origins) -> Result<RunSettings, SettingsError> {
    let Some(epochs) = settings.train.epochs else { return Ok(settings) };
    match (origins.is_typed("train.steps"), origins.is_typed("train.epochs")) {
        (true, true) => {
            let problem = "say train.steps or train.epochs, not both".to_owned();
            return Err(SettingsError::refused("train.steps", problem, origins));
        }
        (true, false) => {
            settings.train.epochs = None;
            return Ok(settings);
        }
        (false, _) => {}
    }
    let batch = u64::from(settings.train.batch);
    settings.train.steps = samples.saturating_mul(epochs).div_ceil(batch);
    let a_pass = Some(samples.div_ceil(batch));
    if !origins.is_set("eval.every") {
        settings.eval.every = a_pass;
    }
    if !origins.is_set("save.every") {
        settings.save.every = a_pass;
    }
    Ok(settings)
}

fn resolved(settings: &RunSettings, facts: &DeviceFacts, origins: &Origins) -> Result<Line> {
    let line = settings.memory.host_line.resolve(facts.host_total);
    Ok(line.map_err(|error| SettingsError::refused("memory.host_limit", error.to_string(), origins))?)
}

/// What tensors may take while it is found out what they need.
const ROOM_TO_FIND_OUT: Bytes = Bytes::from_mib(64);

/// Computes the gradients of a batch of one item, so that libraries are loaded and their scratch is there before memory
/// is shared out; what tensors then took, moments included. Parameters and random numbers stay as they were.
fn warm_up(
    (name, model): (ModelName, &Model),
    item: &Arc<Item>,
    widths: Widths,
    batch: u32,
    device: Device,
    line: Bytes,
) -> Result<Bytes> {
    let before = attempt(|| rng::state(device)).and_then(|state| state)?;
    // A line that is passed already will be refused, with the least that works: for that, this has to be known all the same.
    let left = line.saturating_sub(host::resident_without_tensors()).max(ROOM_TO_FIND_OUT);
    host::set_line(Line::at(left).unwrap_or(Line::NONE));
    host::reset_peak();
    let compute = |count: u32| {
        attempt(|| {
            let batch = collate(&vec![Arc::clone(item); count as usize], widths, name, device);
            let inputs = batch.inputs.iter().map(Tensor::shallow_clone).collect();
            let outputs = model.segments().iter().fold(inputs, |values: Vec<Tensor>, segment| segment.run(&values));
            model.losses(&outputs, &batch.targets).sum(Kind::Float).backward();
        })
    };
    // Where the whole batch does not fit, the guard will cut it; one item loads the libraries all the same.
    let tried = compute(batch).or_else(|error| if error.is_oom() { compute(1) } else { Err(error) });
    let parameters: Vec<Tensor> = model.parameters().values().map(Tensor::shallow_clone).collect();
    gradients::release(&parameters);
    rng::set_state(device, &before)?;
    host::set_line(Line::NONE);
    tried?;
    let moments = parameters.iter().map(|value| 2 * 4 * value.numel() as u64).sum();
    let most = host::stats().peak.saturating_add(Bytes(moments));
    // The guard keeps some room free; with less, a batch would be cut that need not be.
    Ok(Bytes(most.get() / 2 * 3))
}

/// The settings of `model.*`, and all settings with the workload's own defaults filled in.
pub(crate) fn checked_settings(loaded: &LoadedSettings) -> Result<(ModelSettings, RunSettings), SettingsError> {
    let model: ModelSettings = typed(&loaded.settings.model, "model", &loaded.origins)?;
    let data: DataSettings = typed(&loaded.settings.data, "data", &loaded.origins)?;
    let data = data.with_source();
    if let Some((key, problem)) = model.problem().or_else(|| data.problem()) {
        return Err(SettingsError::refused(key, problem, &loaded.origins));
    }
    let settings = RunSettings {
        model: serde_json::to_value(&model).expect("plain numbers and names"),
        data: serde_json::to_value(data).expect("plain numbers and names"),
        ..loaded.settings.clone()
    };
    Ok((model, settings))
}

impl Workload for Scoring {
    fn name(&self) -> &str {
        match self.name {
            ModelName::Lstm => "scoring/lstm",
            ModelName::GnnDet => "scoring/gnn_det",
            ModelName::Gvae => "scoring/gvae",
        }
    }

    fn state(&self) -> BTreeMap<String, Tensor> {
        self.model.parameters().iter().map(|(name, value)| (name.clone(), value.shallow_clone())).collect()
    }

    /// Matrices decay, biases do not.
    fn parameter_groups(&self) -> Vec<(f64, Vec<(String, Tensor)>)> {
        let (matrices, biases): (Vec<_>, Vec<_>) = self.state().into_iter().partition(|(_, value)| value.dim() >= 2);
        vec![(1.0, matrices), (0.0, biases)]
    }

    fn mode(&self) -> &Mode {
        &self.mode
    }

    fn segments(&self) -> &[Segment] {
        self.model.segments()
    }

    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, _chunks: NonZeroU32) -> Tensor {
        self.model.losses(outputs, &batch.targets).sum(Kind::Float)
    }

    /// `mae`, `rmse`, `r2` and `spearman` over all evaluated items.
    fn metrics(&self) -> Vec<Metric<'_>> {
        agreement().into_iter().map(|(name, tally)| Metric::new(name, tally)).collect()
    }

    fn prepare(&self, first: u64, count: u32) {
        let (items, widths, name) = (self.supply.train_ahead(first, count), self.widths, self.name);
        let make =
            move || items().ok().filter(|items| !items.is_empty()).and_then(|items| checked(&items, widths, name).ok());
        self.ahead.begin(first, count, make);
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        match self.supply.waiting(|| self.ahead.take(first, count)).flatten() {
            Some(collated) => collated.into_batch(self.device),
            None => self.batch(&self.supply.train(first, count)),
        }
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(&self.supply.eval(first, count))
    }

    fn expect(&self, train: PartOf, eval: PartOf) {
        self.supply.expect(train, eval);
    }

    fn eval_samples(&self) -> Option<u64> {
        Some(self.supply.eval_count())
    }

    fn targets_per_sample(&self) -> u64 {
        1
    }

    fn data_reserve(&self) -> Bytes {
        self.reserve
    }

    fn cache(&self) -> Option<CacheSummary> {
        Some(self.supply.cache_summary())
    }
}
