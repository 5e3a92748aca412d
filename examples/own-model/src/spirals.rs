//! Points on two spirals, and a network that tells which of the two each lies on.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::num::NonZeroU32;

use lowtide_settings::{LoadedSettings, SettingsError, typed};
use lowtide_torch::tch::{Device, Kind, Reduction, Tensor};
use lowtide_torch::{DeviceFacts, Segment, Shared, attempt};
use lowtide_train::{Batch, Bundle, Metric, Mode, Recipe, Result, Workload};
use serde::Deserialize;

/// What the program is told of it: its name in `workload: spirals`, a configuration for `train spirals`, and how it is made.
pub(crate) const RECIPE: Recipe = Recipe::new("spirals", include_str!("../spirals.yaml"), build);

/// The keys under `model`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelSettings {
    /// Values in a hidden layer.
    width: u32,
    /// Hidden layers.
    layers: u32,
}

/// The keys under `data`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataSettings {
    /// How often each spiral goes round.
    turns: f64,
}

struct Spirals {
    mode: Mode,
    parameters: BTreeMap<String, Tensor>,
    segments: Vec<Segment>,
    turns: f64,
    device: Device,
}

/// Which samples are meant.
#[derive(Clone, Copy)]
enum Part {
    Train = 0,
    Eval = 1,
}

fn build(loaded: &LoadedSettings, facts: &DeviceFacts) -> Result<Bundle> {
    let settings = &loaded.settings;
    let model: ModelSettings = typed(&settings.model, "model", &loaded.origins)?;
    let data: DataSettings = typed(&settings.data, "data", &loaded.origins)?;
    if model.width == 0 {
        return Err(SettingsError::refused("model.width", "must be at least 1", &loaded.origins).into());
    }
    // An attempt turns errors of LibTorch into values: a model that does not fit is refused, and nothing panics.
    let spirals = attempt(|| Spirals::new(&model, data.turns, facts.device))?;
    Ok(Bundle::new(spirals, settings.clone()))
}

impl Spirals {
    /// Draws its parameters from LibTorch's generator, which the program has seeded.
    fn new(model: &ModelSettings, turns: f64, device: Device) -> Spirals {
        let hidden = (0..model.layers).map(|_| i64::from(model.width));
        let widths: Vec<i64> = [2].into_iter().chain(hidden).chain([2]).collect();
        let last = widths.len() - 2;
        let (mut parameters, mut segments) = (BTreeMap::new(), Vec::new());
        for (number, width) in widths.windows(2).enumerate() {
            let (inputs, outputs) = (width[0], width[1]);
            let scale = (2.0 / inputs as f64).sqrt();
            let weight = (Tensor::randn([outputs, inputs], (Kind::Float, device)) * scale).set_requires_grad(true);
            let bias = Tensor::zeros([outputs], (Kind::Float, device)).set_requires_grad(true);
            parameters.insert(format!("{number}.weight"), weight.shallow_clone());
            parameters.insert(format!("{number}.bias"), bias.shallow_clone());
            // What one segment computes is kept for backward, or computed again where memory is short.
            let layer = Shared::new((weight, bias));
            segments.push(Segment::new(move |inputs| {
                let sums = inputs[0].linear(&layer.0, Some(&layer.1));
                vec![if number == last { sums } else { sums.relu() }]
            }));
        }
        Spirals { mode: Mode::default(), parameters, segments, turns, device }
    }

    /// A sample depends on its number alone, so that a step can be repeated and a run resumed.
    fn batch(&self, part: Part, first: u64, count: u32) -> Batch {
        let (mut points, mut spirals) = (Vec::new(), Vec::new());
        for number in first..first + u64::from(count) {
            let spiral = (number % 2) as i64;
            // The golden ratio spreads them evenly, those for training between those for evaluation.
            let radius = ((2 * number + part as u64) as f64 * 0.618_033_988_749_895).fract();
            let angle = TAU * (self.turns * radius + 0.5 * spiral as f64);
            points.extend([(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]);
            spirals.push(spiral);
        }
        Batch {
            inputs: vec![Tensor::from_slice(&points).view([-1, 2]).to_device(self.device)],
            targets: vec![Tensor::from_slice(&spirals).to_device(self.device)],
            targets_per_sample: 1,
        }
    }
}

impl Workload for Spirals {
    fn name(&self) -> &str {
        RECIPE.name
    }

    fn state(&self) -> BTreeMap<String, Tensor> {
        self.parameters.iter().map(|(name, value)| (name.clone(), value.shallow_clone())).collect()
    }

    fn mode(&self) -> &Mode {
        &self.mode
    }

    fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// A sum, not a mean: the trainer cuts batches into micro-batches, and divides by all targets of a step.
    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, _chunks: NonZeroU32) -> Tensor {
        outputs[0].cross_entropy_loss::<Tensor>(&batch.targets[0], None, Reduction::Sum, -100, 0.0)
    }

    fn metrics(&self) -> Vec<Metric<'_>> {
        let right = |outputs: &[Tensor], batch: &Batch| outputs[0].argmax(1, false).eq_tensor(&batch.targets[0]);
        vec![Metric::mean("accuracy", move |outputs, batch| right(outputs, batch).sum(Kind::Float))]
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(Part::Train, first, count)
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(Part::Eval, first, count)
    }

    fn targets_per_sample(&self) -> u64 {
        1
    }
}
