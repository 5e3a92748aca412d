//! Where memory goes in a training step of a transformer, by arithmetic.
//!
//! The expected peak of a transformer is 16 bytes a parameter, 12 bytes a logit and 50 bytes for each layer, token and
//! unit of width; within 3 % of PyTorch eager on GPT-2 124M in bf16 at batch 4 and 16, and no more than an estimate
//! elsewhere.

use lowtide_core::Bytes;
use serde::Serialize;

use crate::Activity;
use crate::block::{Attention, FeedForward, GATED};
use crate::culprit::is_size;
use crate::facts::{Dtype, FP32, Facts, Key};
use crate::log::Sign;
use crate::sharing::{Held, Sharing};

/// Memory of a training step, by what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Account {
    /// The parts, in the order in which they come to be.
    pub rows: Vec<Row>,
    /// All parts together: the expected peak.
    pub total_bytes: Bytes,
    /// Whether activations and logits are among them: not where the log does not tell how long samples are.
    pub is_whole: bool,
}

/// One part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// What it is.
    pub name: &'static str,
    /// How much.
    pub bytes: Bytes,
    /// The product it comes from.
    pub how: String,
}

/// A transformer, as far as memory goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) parameters: u64,
    /// Those that are trained, and have gradients and moments.
    pub(crate) trained: u64,
    pub(crate) layers: u64,
    /// Heads whose scores are held as matrices, where attention makes them.
    pub(crate) score_heads: u64,
    pub(crate) width: u64,
    /// Units of a layer's feed-forward part that one token goes through.
    pub(crate) inner: u64,
    pub(crate) vocabulary: u64,
    /// Parameters that stay in 16 bits where the others are in fewer.
    pub(crate) embeddings: u64,
    /// Bits of weights that are not trained, where they are 8 or 4.
    pub(crate) weight_bits: Option<u64>,
    pub(crate) sharing: Sharing,
    /// Tokens of a sample; 0 where nothing tells.
    pub(crate) sequence: u64,
    pub(crate) dtype: Dtype,
    /// Whether weights, gradients and moments are in 16 bits, too.
    pub(crate) is_narrow: bool,
    /// Whether the optimizer's moments are in 8 bits.
    pub(crate) has_small_moments: bool,
    pub(crate) recomputes: bool,
    /// Whether logits are made in pieces, one at a time.
    pub(crate) chunks_loss: bool,
    /// Whether memory is the machine's, by way of its C library.
    pub(crate) is_on_cpu: bool,
}

/// Bytes of two moments in 8 bits.
pub(crate) const SMALL_MOMENTS: u64 = 2;
/// Matrices of scores that attention without a fused kernel has in forward and backward: scores, mask, softmax, dropout,
/// its mask, and gradients.
const SCORE: u64 = 7;
/// Bytes for each logit at the peak: 16-bit, widened to fp32, and the gradients of both.
const LOGIT: u64 = 12;
/// In so many pieces a loss is computed that is not computed whole.
const PIECES: u64 = 8;

impl Model {
    /// The model that settings describe; `None` where its shape is not there.
    pub(crate) fn read(facts: &Facts<'_>) -> Option<Self> {
        let nanogpt = facts.is_nanogpt();
        let or = |key, usual: u64| facts.number(key).or_else(|| nanogpt.then_some(usual));
        let layers = bounded(or(Key::Layers, 12)?, 4096)?;
        let width = bounded(or(Key::Width, 768)?, 1 << 17)?;
        let vocabulary = bounded(facts.vocabulary()?, 1 << 24)?;
        let sequence = facts.sequence().unwrap_or_default();
        if sequence > 1 << 24 {
            return None;
        }
        let heads = facts.number(Key::Heads).filter(|heads| *heads > 0);
        let is_gated = facts.text(Key::ModelType).is_some_and(|kind| GATED.iter().any(|name| kind.starts_with(name)));
        let matrices = if is_gated { 3 } else { 2 };
        let feed_forward = FeedForward::read(facts, layers, width)?;
        let block = Attention::read(facts, heads, width)?.weights();
        let blocks = (layers * block).saturating_add(feed_forward.units.saturating_mul(matrices * width));
        let is_tied = facts.is_on(Key::Tied).unwrap_or(!is_gated);
        let positions = if is_gated { 0 } else { facts.number(Key::Positions).unwrap_or(sequence).min(1 << 24) };
        let embeddings = vocabulary * width * if is_tied { 1 } else { 2 } + positions * width;
        let (parameters, trained) = believed(facts, blocks.saturating_add(embeddings))?;
        let switches = facts.log.switches;
        let sharing = Sharing::read(&switches.sharing)?;
        let is_narrow = switches.half_training && trained == parameters && !facts.log.signs.has(Sign::DeepSpeed);
        Some(Self {
            parameters,
            trained,
            layers,
            score_heads: heads.filter(|_| holds_scores(facts)).unwrap_or_default(),
            width,
            inner: feed_forward.active,
            vocabulary,
            embeddings: embeddings.min(parameters),
            weight_bits: facts.flags.weight_bits().beside_adapters().filter(|_| trained < parameters),
            sharing,
            sequence,
            dtype: facts.dtype().unwrap_or(FP32),
            is_narrow,
            has_small_moments: switches.eight_bit_moments,
            recomputes: facts.recomputes(),
            chunks_loss: facts.chunks_loss(),
            is_on_cpu: facts.is_on_cpu(),
        })
    }

    /// The same model as what an update was refused shows it: where that is a moment of a matrix in 16 bits, all are.
    pub(crate) fn shown_by_moment(self, refused: Option<Bytes>, activity: Option<Activity>) -> Self {
        let Some(refused) = refused.filter(|_| activity == Some(Activity::Optimizer) && self.dtype.bytes == 2) else {
            return self;
        };
        let matrices = [self.vocabulary, self.inner].map(|size| size.saturating_mul(self.width));
        let is_of = |bytes: u64| matrices.iter().any(|size| is_size(size.saturating_mul(bytes), refused));
        match (is_of(2), is_of(4)) {
            (true, false) => Self { is_narrow: true, ..self },
            (false, true) => Self { is_narrow: false, ..self },
            _ => self,
        }
    }

    /// The same model as what a process held shows it: one that was at its moments, or in its first step, and had not even room for
    /// its weights (and gradients) in fp32, has them in 16 bits.
    pub(crate) fn shown_by(self, held: Option<Bytes>, activity: Option<Activity>) -> Self {
        let least = match activity {
            Some(Activity::Optimizer) => 8,
            Some(Activity::Training) => 4,
            _ => return self,
        };
        let is_whole = self.trained == self.parameters && self.dtype.bytes == 2;
        let is_alone = self.sharing == Sharing::default();
        let is_small =
            is_whole && is_alone && held.is_some_and(|held| held.get() < self.parameters.saturating_mul(least));
        Self { is_narrow: self.is_narrow || is_small, ..self }
    }

    /// Whether it is known how long samples are.
    pub(crate) fn is_whole(&self) -> bool {
        self.sequence > 0
    }

    /// The type of weights that are trained, of their gradients and moments.
    const fn trained_type(&self) -> Dtype {
        if self.is_narrow { self.dtype } else { FP32 }
    }

    /// Parameters, gradients and moments: what no batch size changes.
    pub(crate) fn fixed(&self) -> u64 {
        self.held().all()
    }

    pub(crate) fn held(&self) -> Held {
        Held { weights: self.weights(), gradients: self.gradients(), moments: self.moments() }
    }

    /// Weights that are not trained are held in the type that is computed in, or in fewer bits.
    pub(crate) fn weights(&self) -> u64 {
        let others = self.parameters.saturating_sub(self.embeddings);
        let all = match self.bits() {
            // Of each block of 64 weights in 4 bits a factor in fp32 is kept.
            Some(4) => (others / 16).saturating_mul(9).saturating_add(self.embeddings.saturating_mul(2)),
            Some(_) => others.saturating_add(self.embeddings.saturating_mul(2)),
            None => self.parameters.saturating_mul(self.weight_type().bytes),
        };
        self.sharing.of_weights(all)
    }

    fn bits(&self) -> Option<u64> {
        self.weight_bits.filter(|_| self.trained < self.parameters)
    }

    /// Gradients of what is trained.
    pub(crate) fn gradients(&self) -> u64 {
        self.sharing.of_gradients(self.trained.saturating_mul(self.bytes_of_a_gradient()))
    }

    /// Bytes of one weight.
    pub(crate) const fn bytes_of_a_weight(&self) -> u64 {
        self.weight_type().bytes
    }

    /// AdamW's two moments.
    pub(crate) fn moments(&self) -> u64 {
        self.sharing.of_moments(self.trained.saturating_mul(self.bytes_of_moments()))
    }

    /// Bytes of a gradient of one parameter that is trained.
    pub(crate) const fn bytes_of_a_gradient(&self) -> u64 {
        self.trained_type().bytes
    }

    /// Bytes of two moments of one parameter that is trained.
    pub(crate) const fn bytes_of_moments(&self) -> u64 {
        if self.has_small_moments { SMALL_MOMENTS } else { 2 * self.trained_type().bytes }
    }

    /// The same model with adapters of rank 16 in place of all its weights.
    pub(crate) fn with_adapters(self) -> Self {
        Self { trained: (self.parameters / 200).max(1), ..self }
    }

    /// The same model with the weights that are not trained in 4 bits.
    pub(crate) fn in_four_bits(self) -> Self {
        Self { weight_bits: Some(4), ..self }
    }

    /// Scores of attention for one sample and one layer, with what softmax keeps.
    fn scores(&self) -> u64 {
        let pairs = self.sequence.saturating_mul(self.sequence).saturating_mul(self.score_heads);
        pairs.saturating_mul(SCORE * self.dtype.bytes)
    }

    /// What a batch holds of them in all layers.
    pub(crate) fn score_bytes(&self, batch: u64) -> Bytes {
        Bytes(self.scores().saturating_mul(self.layers).saturating_mul(batch))
    }

    /// What logits and their gradients take for a batch.
    pub(crate) fn logit_bytes(&self, batch: u64) -> Bytes {
        Bytes(self.logits().saturating_mul(batch))
    }

    /// Activations of one sample, all layers.
    ///
    /// For 16 bits and inner = 4 x width this is 50 bytes for each layer, token and unit of width: GPT-2 124M under
    /// autocast in PyTorch eager takes 5.95 GiB at batch 4 and 18.25 GiB at 16, which is 1.025 GiB a sample, logits
    /// included.
    fn activations(&self) -> u64 {
        let held = 34 * self.width + 4 * self.inner;
        let held = if self.dtype == FP32 { held * 3 / 2 } else { held };
        // Dropout keeps a mask and a copy of each of a layer's two outputs.
        let held = if self.score_heads > 0 { held + 16 * self.width } else { held };
        let layer = self.sequence.saturating_mul(held).saturating_add(self.scores());
        // A C library keeps what is given back in pieces: a character model took 1.35 times the sum of its tensors.
        let layer = if self.is_on_cpu { layer.saturating_mul(3) / 2 } else { layer };
        match self.recomputes {
            // Inputs of every layer, and one layer whole.
            true => self.sequence.saturating_mul(4 * self.width).saturating_mul(self.layers).saturating_add(layer),
            false => layer.saturating_mul(self.layers),
        }
    }

    const fn weight_type(&self) -> Dtype {
        if self.trained < self.parameters { self.dtype } else { self.trained_type() }
    }

    fn logits(&self) -> u64 {
        let all = self.sequence.saturating_mul(self.vocabulary).saturating_mul(LOGIT);
        if self.chunks_loss { all / PIECES } else { all }
    }

    /// The expected peak of a training step with so many samples at once.
    pub(crate) fn peak(&self, batch: u64) -> Bytes {
        let sample = self.activations().saturating_add(self.logits());
        Bytes(self.fixed().saturating_add(batch.saturating_mul(sample)))
    }

    /// The same model whose loss is computed in pieces.
    pub(crate) fn with_chunked_loss(self) -> Self {
        Self { chunks_loss: true, ..self }
    }

    /// The table for a batch.
    pub(crate) fn account(&self, batch: u64) -> Account {
        let tokens = batch.saturating_mul(self.sequence);
        let row = |name, bytes: u64, how: String| Row { name, bytes: Bytes(bytes), how };
        let kind = self.trained_type();
        let mut rows = vec![
            row("parameters", self.weights(), {
                let held = match self.bits() {
                    Some(bits) => format!("{bits} bits, embeddings in bf16"),
                    None => self.weight_type().name.to_owned(),
                };
                format!("{} in {held}{}", millions(self.parameters), self.sharing.words(3))
            }),
            row("gradients", self.gradients(), {
                format!("{} in {}{}", millions(self.trained), kind.name, self.sharing.words(2))
            }),
            row("optimizer", self.moments(), {
                let type_of_moments = if self.has_small_moments { "8 bits" } else { kind.name };
                format!("two moments of AdamW in {type_of_moments}{}", self.sharing.words(1))
            }),
        ];
        let of_batch = [
            row(
                "activations",
                self.activations().saturating_mul(batch),
                match self.recomputes {
                    true => format!("{tokens} tokens, {} layers recomputed", self.layers),
                    false => format!(
                        "{tokens} tokens x {} layers x width {} in {}",
                        self.layers, self.width, self.dtype.name
                    ),
                },
            ),
            row("logits", self.logits().saturating_mul(batch), {
                let pieces =
                    if self.chunks_loss { format!(", one of {PIECES} pieces at a time") } else { String::new() };
                format!("{tokens} tokens x {} x {LOGIT} bytes with gradients{pieces}", self.vocabulary)
            }),
        ];
        rows.extend(of_batch.into_iter().filter(|_| self.is_whole()));
        let total = rows.iter().fold(Bytes::ZERO, |sum, row| sum.saturating_add(row.bytes));
        Account { rows, total_bytes: total, is_whole: self.is_whole() }
    }
}

/// Parameters and those that are trained, by the shape and by what the log prints: where both are there and do not agree,
/// defaults were guessed wrongly, or the configuration is another model's.
fn believed(facts: &Facts<'_>, by_shape: u64) -> Option<(u64, u64)> {
    let agree = |logged: u64| logged.abs_diff(by_shape) <= by_shape / 4;
    let log = facts.log;
    // Two weights of 4 bits are counted as one by whoever counts the elements of tensors.
    let bits = facts.flags.weight_bits().beside_adapters();
    let is_packed = |all: u64| bits == Some(4) && (by_shape / 2..by_shape / 4 * 3).contains(&all);
    // Adapters whose size nobody prints are small, and so is what quantized weights are trained with.
    let adapts = bits.is_some() || log.signs.has(Sign::Adapters) && !log.narrative.tunes_all_weights;
    match (facts.log.parameters, facts.log.trained) {
        (Some(all), trained) if is_packed(all) => Some((by_shape, trained.unwrap_or(by_shape / 200))),
        (Some(all), trained) => agree(all).then(|| (all, trained.unwrap_or(all).min(all))),
        // What a trainer prints of the trained ones is all of them, or the adapters.
        (None, Some(trained)) if agree(trained) => Some((trained, trained)),
        (None, Some(trained)) => (trained < by_shape / 4).then_some((by_shape, trained)),
        (None, None) if adapts => Some((by_shape, by_shape / 200)),
        (None, None) => Some((by_shape, by_shape)),
    }
}

/// Whether attention makes whole matrices of scores: on a processor the fused kernel takes no dropout.
fn holds_scores(facts: &Facts<'_>) -> bool {
    let has_dropout = facts.text(Key::Dropout).and_then(|text| text.parse::<f64>().ok()).is_some_and(|rate| rate > 0.0);
    facts.is_on_cpu() && has_dropout
}

fn millions(count: u64) -> String {
    let millions = count as f64 / 1e6;
    if millions < 1.0 { format!("{millions:.2}M") } else { format!("{millions:.1}M") }
}

fn bounded(number: u64, most: u64) -> Option<u64> {
    (1..=most).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_config::Config;

    #[test]
    fn gpt2_is_as_measured() {
        let configs = [Config::parse("train.py", "batch_size = 4\nblock_size = 1024\n").unwrap()];
        let facts = Facts::of(&configs);
        let model = Model::read(&facts).unwrap();
        assert!((123_500_000..125_000_000).contains(&model.parameters), "{}", model.parameters);
        // Measured: 5.95 and 18.25 GiB.
        for (batch, measured) in [(4, 5.95), (16, 18.25)] {
            let peak = model.peak(batch).as_gib();
            assert!((peak / measured - 1.0).abs() < 0.03, "{peak}");
            assert_eq!(model.account(batch).total_bytes, model.peak(batch));
        }
    }

    #[test]
    fn all_experts_count_and_a_token_takes_a_few() {
        for (name, text, all, inner) in [
            (
                "Mixtral-8x7B",
                r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 8,
                "vocab_size": 32000, "tie_word_embeddings": false}"#,
                46_703_000_000,
                28_672,
            ),
            (
                "Qwen3-30B-A3B",
                r#"{"model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
                "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
                "num_hidden_layers": 48, "num_key_value_heads": 4, "tie_word_embeddings": false, "vocab_size": 151936}"#,
                30_532_000_000,
                6144,
            ),
            (
                "gpt-oss-20b",
                r#"{"model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880,
                "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 24, "num_local_experts": 32,
                "experts_per_token": 4, "tie_word_embeddings": false, "vocab_size": 201088}"#,
                20_914_000_000,
                11_520,
            ),
            (
                "DeepSeek-V2-Lite",
                r#"{"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
                "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
                "first_k_dense_replace": 1, "num_hidden_layers": 27, "num_attention_heads": 16,
                "num_key_value_heads": 16, "tie_word_embeddings": false, "vocab_size": 102400}"#,
                15_706_000_000,
                11_264,
            ),
            (
                "Qwen1.5-MoE-A2.7B",
                r#"{"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632,
                "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
                "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_attention_heads": 16,
                "num_key_value_heads": 16, "tie_word_embeddings": false, "vocab_size": 151936}"#,
                14_316_000_000,
                11_264,
            ),
        ] {
            let configs = [Config::parse("config.json", text).unwrap()];
            let facts = Facts::of(&configs);
            let model = Model::read(&facts).unwrap();
            assert!(model.parameters.abs_diff(all) < all / 100, "{name}: {}", model.parameters);
            assert_eq!(model.inner, inner, "{name}");
        }
    }

    #[test]
    fn llama_has_the_parameters_it_is_named_for() {
        let text = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
            "tie_word_embeddings": false}"#;
        let configs = [Config::parse("config.json", text).unwrap()];
        let facts = Facts::of(&configs);
        let model = Model::read(&facts).unwrap();
        assert!((6_700_000_000..6_770_000_000).contains(&model.parameters), "{}", model.parameters);
    }
}
