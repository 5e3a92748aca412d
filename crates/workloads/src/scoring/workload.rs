//! The workload `scoring`: one of its models, its items, and how the loop sees them. A sample is an item.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_settings::{Loaded, Origins, RunSettings, SettingsError, typed};
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{Segment, attempt};
use lowtide_train::{Batch, Mode, Result, Tally, Workload};

use super::batch::collate;
use super::generated::Generated;
use super::item::{Item, Items, Widths};
use super::metrics::Agreement;
use super::model::Model;
use super::settings::{DataSettings, ModelName, ModelSettings, Source};
use super::split::Split;

/// One of the models on its items.
pub struct Scoring {
    name: ModelName,
    model: Model,
    mode: Mode,
    items: Box<dyn Items>,
    widths: Widths,
    split: Split,
    device: Device,
}

impl Scoring {
    /// Builds the one model that the settings name; returns them with its own defaults filled in.
    pub fn build(loaded: &Loaded, device: Device) -> Result<(Scoring, RunSettings)> {
        let (model, settings) = checked_settings(loaded)?;
        let data: DataSettings = typed(&settings.data, "data", &loaded.origins)?;
        let [name] = model.run[..] else {
            let problem = "several models are several runs, and this is one".to_owned();
            return Err(SettingsError::refused("model.run", problem, &loaded.origins).into());
        };
        let items = match data.source {
            Source::Generated => Box::new(Generated { seed: settings.seed, count: data.count }),
        };
        Ok((Scoring::new(name, &model, items, settings.seed, device, &loaded.origins)?, settings))
    }

    /// A fresh model on these items, which are trained on in the order of `seed`.
    pub fn new(
        name: ModelName,
        settings: &ModelSettings,
        items: Box<dyn Items>,
        seed: u64,
        device: Device,
        origins: &Origins,
    ) -> Result<Scoring> {
        let split = attempt(|| Split::of(&*items, seed))?;
        if split.counts().contains(&0) {
            let [train, eval] = split.counts();
            let problem = format!("there are {train} items to train on and {eval} to evaluate on: both must have some");
            return Err(SettingsError::refused("data", problem, origins).into());
        }
        let widths = attempt(|| {
            let first = items.item(0);
            Widths::of(&first).unwrap_or_else(|problem| {
                lowtide_torch::refuse_input(format!("item `{}`: {problem}", first.id));
            })
        })?;
        let mode = Mode::default();
        let model = attempt(|| Model::new(name, settings, widths, &mode, device))?;
        Ok(Scoring { name, model, mode, items, widths, split, device })
    }

    fn batch(&self, first: u64, count: u32, number_of: impl Fn(u64) -> u64) -> Batch {
        let good = |sample| {
            let item = self.items.item(number_of(sample));
            self.widths.demand(&item);
            item
        };
        let items: Vec<Item> = (first..first + u64::from(count)).map(good).collect();
        collate(&items, self.widths, self.name, self.device)
    }
}

/// The settings of `model.*`, and all settings with the workload's own defaults filled in.
pub(crate) fn checked_settings(loaded: &Loaded) -> Result<(ModelSettings, RunSettings), SettingsError> {
    let model: ModelSettings = typed(&loaded.settings.model, "model", &loaded.origins)?;
    let data: DataSettings = typed(&loaded.settings.data, "data", &loaded.origins)?;
    if let Some((key, problem)) = model.problem() {
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
    fn tally(&self) -> Box<dyn Tally + '_> {
        Box::<Agreement>::default()
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(first, count, |sample| self.split.train_item(sample))
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(first, count, |sample| self.split.eval_item(sample))
    }

    fn eval_samples(&self) -> Option<u64> {
        let [_, eval] = self.split.counts();
        Some(eval)
    }

    fn targets_per_sample(&self) -> u64 {
        1
    }
}
