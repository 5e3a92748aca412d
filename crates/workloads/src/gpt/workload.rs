//! The workload `gpt`: the model, its text, and how the loop sees them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_settings::{LoadedSettings, RunSettings, SettingsError, typed};
use lowtide_torch::tch::{Device, Tensor};
use lowtide_torch::{Segment, attempt, upload};
use lowtide_train::{Batch, Mode, Result, Workload};

use super::model::Model;
use super::settings::{DataSettings, ModelSettings};
use super::text::{Part, Text};

/// GPT-2 on text.
pub struct Gpt {
    model: Model,
    mode: Mode,
    text: Text,
    tokens: usize,
    device: Device,
}

impl Gpt {
    /// Builds it from the settings; returns them with its own defaults filled in.
    pub fn build(loaded: &LoadedSettings, device: Device) -> Result<(Gpt, RunSettings)> {
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
        let text = Text::open(&data, &model, settings.seed, &loaded.origins)?;
        let mode = Mode::default();
        let tokens = model.block_size as usize;
        let model = attempt(|| Model::new(&model, &mode, device))?;
        Ok((Gpt { model, mode, text, tokens, device }, settings))
    }

    /// Samples `first .. first + count` as inputs and the tokens that follow them.
    fn batch(&self, part: Part, first: u64, count: u32) -> Batch {
        let length = self.tokens + 1;
        let mut ids = Vec::with_capacity(length * count as usize);
        for number in first..first + u64::from(count) {
            ids.extend(self.text.sample(part, number));
        }
        let ids = upload(&Tensor::from_slice(&ids).view([i64::from(count), length as i64]), self.device);
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
        self.model.loss_sum(outputs, &batch.targets[0], chunks)
    }

    /// Below a few tokens a piece the pieces cost more than they save.
    fn most_loss_chunks(&self) -> NonZeroU32 {
        NonZeroU32::new(16).expect("16 is not 0")
    }

    fn train_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(Part::Train, first, count)
    }

    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.batch(Part::Eval, first, count)
    }

    fn has_tokens(&self) -> bool {
        true
    }

    fn targets_per_sample(&self) -> u64 {
        self.tokens as u64
    }

    fn loss_floor(&self) -> Option<f64> {
        self.text.entropy()
    }
}
