//! The workload `gpt`: the model, its text, and how the loop sees them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_settings::{Loaded, RunSettings, SettingsError, typed};
use lowtide_torch::tch::{Device, Tensor};
use lowtide_torch::{Segment, attempt};
use lowtide_train::{Batch, Mode, Result, Workload};

use super::model::Model;
use super::settings::{DataSettings, ModelSettings};
use crate::text_source::TextSource;

/// Evaluation samples are numbered from here, far above any training sample.
const EVALUATION: u64 = 1 << 62;

/// GPT-2 on text.
pub struct Gpt {
    model: Model,
    mode: Mode,
    text: TextSource,
    tokens: usize,
    device: Device,
}

impl Gpt {
    /// Builds it from the settings; returns them with its own defaults filled in.
    pub fn build(loaded: &Loaded, device: Device) -> Result<(Gpt, RunSettings)> {
        let model: ModelSettings = typed(&loaded.settings.model, "model", &loaded.origins)?;
        let data: DataSettings = typed(&loaded.settings.data, "data", &loaded.origins)?;
        if let Some((key, problem)) = model.problem() {
            return Err(SettingsError::refused(key, problem, &loaded.origins).into());
        }
        let settings = RunSettings {
            model: serde_json::to_value(model).expect("plain numbers"),
            data: serde_json::to_value(&data).expect("plain names"),
            ..loaded.settings.clone()
        };
        Ok((Gpt::new(&model, settings.seed, device)?, settings))
    }

    /// A fresh model on the built-in text of `seed`.
    pub fn new(settings: &ModelSettings, seed: u64, device: Device) -> Result<Gpt> {
        let mode = Mode::default();
        let model = attempt(|| Model::new(settings, &mode, device))?;
        Ok(Gpt { model, mode, text: TextSource::new(seed), tokens: settings.block_size as usize, device })
    }

    /// Samples `first .. first + count` as inputs and the tokens that follow them.
    fn batch(&self, first: u64, count: u32) -> Batch {
        let length = self.tokens + 1;
        let mut ids = Vec::with_capacity(length * count as usize);
        for number in first..first + u64::from(count) {
            ids.extend(self.text.sample(number, length).into_iter().map(i64::from));
        }
        let ids = Tensor::from_slice(&ids).view([i64::from(count), length as i64]).to_device(self.device);
        Batch {
            inputs: vec![ids.narrow(1, 0, self.tokens as i64)],
            targets: vec![ids.narrow(1, 1, self.tokens as i64)],
            targets_per_sample: self.tokens as u64,
        }
    }
}

impl Workload for Gpt {
    fn name(&self) -> &str {
        "gpt"
    }

    fn state(&self) -> BTreeMap<String, Tensor> {
        self.model.parameters().iter().map(|(name, value)| (name.clone(), value.shallow_clone())).collect()
    }

    /// Matrices decay, vectors (biases, normalisations) do not, as in GPT-2's training.
    fn parameter_groups(&self) -> Vec<(f64, Vec<(String, Tensor)>)> {
        let (matrices, vectors): (Vec<_>, Vec<_>) = self.state().into_iter().partition(|(_, value)| value.dim() >= 2);
        vec![(1.0, matrices), (0.0, vectors)]
    }

    fn mode(&self) -> &Mode {
        &self.mode
    }

    fn segments(&self) -> &[Segment] {
        self.model.segments()
    }

    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, chunks: NonZeroU32) -> Tensor {
        self.model.loss_sum(&outputs[0], &batch.targets[0], chunks)
    }

    /// Below a few tokens a piece the pieces cost more than they save.
    fn most_loss_chunks(&self) -> NonZeroU32 {
        NonZeroU32::new(16).expect("16 is not 0")
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(first, count)
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(EVALUATION + first, count)
    }

    fn targets_per_sample(&self) -> u64 {
        self.tokens as u64
    }

    fn loss_floor(&self) -> Option<f64> {
        Some(self.text.entropy(self.tokens))
    }
}
