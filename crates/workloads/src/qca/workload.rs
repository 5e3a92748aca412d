//! The workload `qca`: the operator, its episodes, and how the loop sees them. A sample is an episode.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_settings::{LoadedSettings, RunSettings, SettingsError, typed};
use lowtide_torch::tch::{Device, Tensor, no_grad};
use lowtide_torch::{Segment, Shared, attempt, upload};
use lowtide_train::{Batch, Metric, Mode, Result, Workload};

use super::episode;
use super::metrics::{self, Metrics, activity, disc, survival, symmetry};
use super::operator::Operator;
use super::settings::{DataSettings, ModelSettings};
use super::start_state::StartStates;

/// Evaluation samples are numbered from here, far above any training sample.
const EVALUATION: u64 = 1 << 62;

/// A cellular automaton and its episodes.
pub struct Qca {
    settings: ModelSettings,
    parameters: BTreeMap<String, Tensor>,
    segments: Vec<Segment>,
    mode: Mode,
    starts: StartStates,
    device: Device,
}

impl Qca {
    /// Builds it from the settings; returns them with its own defaults filled in.
    pub fn build(loaded: &LoadedSettings, device: Device) -> Result<(Qca, RunSettings)> {
        let model: ModelSettings = typed(&loaded.settings.model, "model", &loaded.origins)?;
        let data: DataSettings = typed(&loaded.settings.data, "data", &loaded.origins)?;
        if let Some((key, problem)) = model.problem() {
            return Err(SettingsError::refused(key, problem, &loaded.origins).into());
        }
        let settings = RunSettings {
            model: serde_json::to_value(model).expect("plain numbers and names"),
            data: serde_json::to_value(data).expect("nothing"),
            ..loaded.settings.clone()
        };
        Ok((Qca::new(&model, settings.seed, device)?, settings))
    }

    /// A fresh operator with the start states of `seed`.
    pub fn new(settings: &ModelSettings, seed: u64, device: Device) -> Result<Qca> {
        let (operator, parameters) = attempt(|| Operator::new(settings, device))?;
        let segments = episode::segments(settings, &Shared::new(operator));
        let starts = StartStates::new(settings, seed);
        Ok(Qca { settings: *settings, parameters, segments, mode: Mode::default(), starts, device })
    }

    /// The figures of the evaluation episodes `first .. first + count`, without gradients and in 32 bits.
    pub fn measure(&self, first: u64, count: u32) -> Result<Metrics> {
        let measured = attempt(|| {
            no_grad(|| {
                let batch = self.eval_batch(first, count);
                let start = batch.inputs[0].shallow_clone();
                let carried = self.segments.iter().fold(batch.inputs, |values, segment| segment.run(&values));
                let (end, turned_end) = self.ends(&carried[0]);
                metrics::metrics(&start, &end, turned_end.as_ref())
            })
        })?;
        Ok(measured)
    }

    /// Samples `first .. first + count`: the start states, and for the loss the same with their discs.
    fn batch(&self, first: u64, count: u32) -> Batch {
        let values: Vec<f32> = (first..first + u64::from(count)).flat_map(|number| self.starts.state(number)).collect();
        let cells = i64::from(self.settings.grid_size);
        let states = Tensor::from_slice(&values).view([i64::from(count), self.settings.channels(), cells, cells]);
        let disc = upload(&disc(&states), self.device);
        let states = upload(&states, self.device);
        let targets = vec![states.shallow_clone(), disc];
        Batch { inputs: vec![states], targets, targets_per_sample: self.targets_per_sample() }
    }

    /// Where the start states came to, and where the turned ones did.
    fn ends(&self, states: &Tensor) -> (Tensor, Option<Tensor>) {
        if !self.settings.symmetry {
            return (states.shallow_clone(), None);
        }
        let [end, turned_end] = <[Tensor; 2]>::try_from(states.chunk(2, 0)).expect("both episodes are there");
        (end, Some(turned_end))
    }

    fn terms(&self, outputs: &[Tensor], batch: &Batch) -> Terms {
        let (start, disc) = (&batch.targets[0], &batch.targets[1]);
        let (end, turned_end) = self.ends(&outputs[0]);
        Terms {
            survival: survival(start, &end, disc),
            activity: activity(start, &end),
            symmetry: turned_end.map(|turned_end| symmetry(start, &end, &turned_end)),
        }
    }
}

/// The terms of the loss, one value an episode.
struct Terms {
    survival: Tensor,
    activity: Tensor,
    /// None where no turned episode was run.
    symmetry: Option<Tensor>,
}

impl Workload for Qca {
    fn name(&self) -> &str {
        "qca"
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

    /// The three figures of every episode, added up; without a turned episode the other two.
    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, _chunks: NonZeroU32) -> Tensor {
        let Terms { survival, activity, symmetry } = self.terms(outputs, batch);
        let loss = survival + activity;
        match symmetry {
            Some(symmetry) => (loss + symmetry).sum(None),
            None => loss.sum(None),
        }
    }

    /// The terms of the loss.
    fn metrics(&self) -> Vec<Metric<'_>> {
        let mean = |name, values: fn(&Tensor, &Tensor, &Batch) -> Tensor| {
            Metric::mean(name, move |outputs: &[Tensor], batch: &Batch| {
                let (end, turned_end) = self.ends(&outputs[0]);
                values(&end, turned_end.as_ref().unwrap_or(&end), batch).sum(None)
            })
        };
        let mut metrics = vec![mean("survival", |end, _, batch| survival(&batch.targets[0], end, &batch.targets[1]))];
        if self.settings.symmetry {
            metrics.push(mean("symmetry", |end, turned_end, batch| symmetry(&batch.targets[0], end, turned_end)));
        }
        metrics.push(mean("activity", |end, _, batch| activity(&batch.targets[0], end)));
        metrics
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(first, count)
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(EVALUATION + first, count)
    }

    fn targets_per_sample(&self) -> u64 {
        1
    }
}
