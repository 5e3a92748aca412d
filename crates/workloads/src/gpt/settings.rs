//! The settings of `model.*` and `data.*` for the workload `gpt`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The shape of the model, with nanoGPT's names. The default is small enough to train on a laptop's CPU in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// Blocks. Default 4.
    pub n_layer: u32,
    /// Attention heads in a block; divides `n_embd`. Default 4.
    pub n_head: u32,
    /// Width. Default 128.
    pub n_embd: u32,
    /// Tokens in a sample. Default 64.
    pub block_size: u32,
    /// Different tokens. Default 32, which holds the 27 of the built-in text.
    pub vocab_size: u32,
    /// Share of values dropped in training. Default 0.
    pub dropout: f64,
}

impl Default for ModelSettings {
    fn default() -> ModelSettings {
        ModelSettings { n_layer: 4, n_head: 4, n_embd: 128, block_size: 64, vocab_size: 32, dropout: 0.0 }
    }
}

impl ModelSettings {
    /// What is wrong with them, as (key, problem).
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        let zero = [
            ("model.n_layer", self.n_layer),
            ("model.n_head", self.n_head),
            ("model.n_embd", self.n_embd),
            ("model.block_size", self.block_size),
        ];
        if let Some((key, _)) = zero.iter().find(|(_, value)| *value == 0) {
            return Some((key, "must be at least 1".to_owned()));
        }
        if !self.n_embd.is_multiple_of(self.n_head) {
            return Some(("model.n_head", format!("{} heads do not divide a width of {}", self.n_head, self.n_embd)));
        }
        if self.vocab_size == 0 {
            return Some(("model.vocab_size", "must be at least 1".to_owned()));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Some(("model.dropout", "must be at least 0 and less than 1".to_owned()));
        }
        None
    }
}

/// Where the text comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    /// The source. Default `synthetic`: made-up text whose entropy is known, so that the loss can be judged.
    pub source: Source,
    /// For `tokens`: the file to train on, `uint16` tokens as nanoGPT's `train.bin`.
    pub train: Option<PathBuf>,
    /// For `tokens`: the file to evaluate on, as nanoGPT's `val.bin`. Default: the training file.
    pub val: Option<PathBuf>,
}

/// A source of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Built in.
    #[default]
    Synthetic,
    /// Files of tokens.
    Tokens,
}
