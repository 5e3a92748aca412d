//! What settings mean, whoever named them, from configurations and from what the log prints of them.

use crate::config::{Config, Setting, Syntax, unquoted};
use crate::remark::{Remark, remark};

/// What a setting is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Batch,
    EvalBatch,
    Accumulation,
    Sequence,
    Positions,
    Vocabulary,
    Layers,
    Heads,
    PairHeads,
    Width,
    Inner,
    Dtype,
    Bf16,
    Fp16,
    Compile,
    EvalIters,
    EvalInterval,
    Crop,
    EvalCrop,
    Frames,
    FrameHeight,
    FrameWidth,
    Recompute,
    Workers,
    Cache,
    ModelType,
    Tied,
    HiddenChannels,
}

/// The names each has, in lower case; the first that a configuration has counts.
const NAMES: &[(Key, &[&str])] = &[
    (
        Key::Batch,
        &[
            "per_device_train_batch_size",
            "train_micro_batch_size_per_gpu",
            "micro_batch_size",
            "device_batch_size",
            "samples_per_gpu",
            "batch_size",
            "train_batch_size",
            "batchsize",
            "bs",
        ],
    ),
    (
        Key::EvalBatch,
        &[
            "per_device_eval_batch_size",
            "eval_batch_size",
            "val_batch_size",
            "validation_batch_size",
            "test_batch_size",
        ],
    ),
    (
        Key::Accumulation,
        &[
            "gradient_accumulation_steps",
            "accumulate_grad_batches",
            "grad_accum_steps",
            "gradient_accumulation",
            "accumulation_steps",
            "accum_steps",
            "grad_accum",
            "accum_iter",
        ],
    ),
    (
        Key::Sequence,
        &[
            "block_size",
            "max_seq_length",
            "max_seq_len",
            "seq_length",
            "seq_len",
            "sequence_length",
            "sequence_len",
            "context_length",
            "model_max_length",
            "max_length",
            "cutoff_len",
        ],
    ),
    (Key::Positions, &["n_positions", "max_position_embeddings", "n_ctx"]),
    (Key::Vocabulary, &["vocab_size", "padded_vocab_size"]),
    (Key::Layers, &["n_layer", "n_layers", "num_hidden_layers", "num_layers"]),
    (Key::Heads, &["n_head", "n_heads", "num_attention_heads", "num_heads"]),
    (Key::PairHeads, &["num_key_value_heads", "n_kv_heads", "n_query_groups"]),
    (Key::Width, &["n_embd", "hidden_size", "d_model", "n_embed", "embed_dim", "model_dim"]),
    (Key::Inner, &["intermediate_size", "n_inner", "ffn_dim", "d_ff"]),
    (Key::Dtype, &["dtype", "mixed_precision", "precision", "torch_dtype", "amp_dtype"]),
    (Key::Bf16, &["bf16"]),
    (Key::Fp16, &["fp16", "use_mixed_precision", "use_amp", "amp"]),
    (Key::Compile, &["compile", "torch_compile", "use_compile"]),
    (
        Key::EvalIters,
        &["eval_iters", "limit_val_batches", "val_batches", "num_val_batches", "max_eval_samples", "eval_batches"],
    ),
    (
        Key::EvalInterval,
        &[
            "eval_interval",
            "eval_steps",
            "val_every_steps",
            "val_check_interval",
            "eval_every",
            "val_every",
            "val_interval",
        ],
    ),
    (Key::Crop, &["crop_size", "patch_size", "gt_size", "train_crop_size"]),
    (Key::EvalCrop, &["val_crop_size", "eval_crop_size", "validation_crop_size", "test_crop_size"]),
    (Key::Frames, &["num_frames", "n_frames", "clip_length", "clip_len", "num_frame", "frames", "sequence_frames"]),
    (Key::FrameHeight, &["frame_height", "height", "img_height", "image_height", "img_h"]),
    (Key::FrameWidth, &["frame_width", "width", "img_width", "image_width", "img_w"]),
    (
        Key::Recompute,
        &[
            "gradient_checkpointing",
            "use_checkpointing",
            "use_checkpoint",
            "activation_checkpointing",
            "use_gradient_checkpointing",
        ],
    ),
    (Key::Workers, &["dataloader_num_workers", "num_workers", "workers", "n_workers", "num_data_workers"]),
    (Key::Cache, &["max_cache_batches", "cache_size", "cache_batches", "max_cache", "cache_images", "cache"]),
    (Key::ModelType, &["model_type"]),
    (Key::Tied, &["tie_word_embeddings"]),
    (Key::HiddenChannels, &["hidden_channels", "base_channels", "n_filters", "num_feat", "embed_channels"]),
];

fn key_of(name: &str) -> Option<(Key, usize)> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    NAMES.iter().find_map(|(key, names)| Some((*key, names.iter().position(|known| *known == name)?)))
}

/// What the log itself tells of the run.
#[derive(Debug, Default, Clone)]
pub(crate) struct LogFacts {
    /// Settings as the log prints them, the last of each.
    settings: Vec<(Key, String)>,
    pub(crate) tokens_per_iteration: Option<u64>,
    pub(crate) parameters: Option<u64>,
    pub(crate) remarks: Vec<Remark>,
    /// Whether the log tells of a loss or of an epoch, as it does after the first step.
    pub(crate) has_progress: bool,
    /// Height and width of frames, where the log names them.
    pub(crate) frame: Option<(u64, u64)>,
}

impl LogFacts {
    /// Looks at some lines of the log.
    pub(crate) fn note(&mut self, text: &str) {
        for line in text.lines().filter(|line| line.len() < 2000) {
            if let Some(remark) = remark(line)
                && self.remarks.len() < 16
                && !self.remarks.iter().any(|known| known.kind == remark.kind)
            {
                self.remarks.push(remark);
            }
            self.note_setting(line);
            if let Some((_, rest)) = line.split_once("tokens per iteration will be: ") {
                self.tokens_per_iteration = whole_number(rest.trim());
            }
            self.parameters = parameters(line).or(self.parameters);
            self.frame = frame(line).or(self.frame);
            self.has_progress |= tells_of_progress(line);
        }
    }

    /// `batch_size = 64`, `Overriding: batch_size = 64`, `  batch_size: 64`: nanoGPT and many others print their
    /// settings.
    fn note_setting(&mut self, line: &str) {
        let line = line.trim().trim_start_matches("Overriding: ");
        let Some((name, value)) =
            line.split_once(" = ").or_else(|| line.split_once(": ")).or_else(|| line.split_once('='))
        else {
            return;
        };
        let Some((key, _)) = key_of(name.trim().trim_matches(['"', '\''])) else { return };
        let value = value.split('#').next().unwrap_or_default().trim().trim_end_matches(',');
        if value.is_empty() || value.len() > 64 {
            return;
        }
        let value = unquoted(value).to_owned();
        match self.settings.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.settings.push((key, value)),
        }
    }

    pub(crate) fn text(&self, key: Key) -> Option<&str> {
        self.settings.iter().find(|(known, _)| *known == key).map(|(_, value)| &**value)
    }

    pub(crate) fn number(&self, key: Key) -> Option<u64> {
        self.text(key).and_then(whole_number)
    }
}

/// `loss 2.31`, `loss: 2.31`, `epoch 3`, `Epoch=3`.
fn tells_of_progress(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    ["loss", "epoch"].iter().any(|word| {
        lower.match_indices(word).any(|(at, _)| {
            let rest = lower[at + word.len()..].trim_start_matches([' ', ':', '=', '\'', '"']);
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.len() < lower.len() - at - word.len()
        })
    })
}

/// `number of parameters: 123.59M`, `27.8M params`, `with 124,354,560 parameters`.
fn parameters(line: &str) -> Option<u64> {
    let lower = line.to_ascii_lowercase();
    let says = [
        "number of parameters",
        "parameters:",
        "params:",
        "m parameters",
        "m params",
        "b parameters",
        "b params",
        " parameters",
    ];
    if !lower.contains("param") || lower.contains("tensors") || !says.iter().any(|words| lower.contains(words)) {
        return None;
    }
    lower.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '=' | ':')).find_map(|word| {
        let (digits, scale) = match word.char_indices().next_back()? {
            (at, 'm') => (&word[..at], 1e6),
            (at, 'b') => (&word[..at], 1e9),
            _ => (word, 1.0),
        };
        let number: f64 = digits.replace(',', "").parse().ok()?;
        let count = number * scale;
        (count.is_finite() && (1e5..1e13).contains(&count)).then_some(count as u64)
    })
}

/// `1920x1080` in a line about frames, as height and width.
fn frame(line: &str) -> Option<(u64, u64)> {
    let lower = line.to_ascii_lowercase();
    if !["frame", "resolution", "image", "full-res", "full res", "video", "val"].iter().any(|word| lower.contains(word))
    {
        return None;
    }
    for (at, cross) in lower.match_indices(['x', '×']) {
        let before = lower[..at].trim_end();
        let start = before
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let after = lower[at + cross.len()..].trim_start();
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if let (Ok(width), Ok(height)) = (before[start..].parse::<u64>(), after[..end].parse::<u64>())
            && (64..=16_384).contains(&width)
            && (64..=16_384).contains(&height)
        {
            return Some((height, width));
        }
    }
    None
}

/// A whole number, or a product of them: `65,536`, `5 * 8`, `1_000`.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let mut product = 1_u64;
    for factor in text.split('*') {
        let digits: String = factor.trim().chars().filter(|c| !matches!(c, ',' | '_')).collect();
        product = product.checked_mul(digits.parse().ok()?)?;
    }
    Some(product)
}

/// A type of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dtype {
    pub(crate) name: &'static str,
    pub(crate) bytes: u64,
}

pub(crate) const BF16: Dtype = Dtype { name: "bf16", bytes: 2 };
pub(crate) const FP16: Dtype = Dtype { name: "fp16", bytes: 2 };
pub(crate) const FP32: Dtype = Dtype { name: "fp32", bytes: 4 };

pub(crate) fn dtype_named(text: &str) -> Option<Dtype> {
    let text = text.to_ascii_lowercase();
    let text = text.strip_prefix("torch.").unwrap_or(&text);
    match text {
        "bfloat16" | "bf16" | "bf16-mixed" | "bf16-true" => Some(BF16),
        "float16" | "fp16" | "half" | "16" | "16-mixed" | "16-true" => Some(FP16),
        "float32" | "fp32" | "float" | "32" | "32-true" | "no" => Some(FP32),
        _ => None,
    }
}

/// Configurations and log together; a configuration counts before the log, a later one before an earlier one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) configs: &'a [Config],
    pub(crate) log: &'a LogFacts,
    /// Whether the stack goes through nanoGPT's `estimate_loss`.
    pub(crate) stack_is_nanogpt: bool,
}

impl<'a> Facts<'a> {
    /// The setting that says it, and which configuration it is in.
    pub(crate) fn find(&self, key: Key) -> Option<(&'a Config, &'a Setting)> {
        self.configs.iter().rev().find_map(|config| {
            let named = |setting: &&'a Setting| {
                setting
                    .path
                    .last()
                    .and_then(|name| key_of(name))
                    .filter(|(known, _)| *known == key)
                    .map(|(_, rank)| rank)
            };
            let best = config.settings.iter().filter(|setting| named(setting).is_some()).min_by_key(named)?;
            // Of settings with the same name the last one counts: scripts assign again, command lines repeat.
            let last = config.settings.iter().rev().find(|setting| setting.path == best.path)?;
            Some((config, last))
        })
    }

    pub(crate) fn text(&self, key: Key) -> Option<&'a str> {
        self.find(key).map(|(_, setting)| &*setting.value).or_else(|| self.log.text(key))
    }

    pub(crate) fn number(&self, key: Key) -> Option<u64> {
        self.text(key).and_then(whole_number)
    }

    pub(crate) fn is_on(&self, key: Key) -> Option<bool> {
        match self.text(key)?.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" => Some(true),
            "false" | "0" | "off" | "no" | "none" | "null" => Some(false),
            _ => None,
        }
    }

    /// Whether this is nanoGPT, or a script after its model.
    pub(crate) fn is_nanogpt(&self) -> bool {
        let by_config = self.configs.iter().any(|config| {
            let has =
                |name: &str| config.settings.iter().any(|setting| setting.path.len() == 1 && setting.path[0] == name);
            config.syntax == Syntax::Python
                && has("batch_size")
                && ["block_size", "n_embd", "eval_iters", "gradient_accumulation_steps", "lr_decay_iters"]
                    .iter()
                    .any(|name| has(name))
        });
        by_config || self.stack_is_nanogpt || self.log.tokens_per_iteration.is_some()
    }

    /// Whether Hugging Face's Trainer reads these settings.
    pub(crate) fn is_hugging_face(&self) -> bool {
        self.find(Key::Batch)
            .is_some_and(|(_, setting)| setting.path.last().is_some_and(|name| name.starts_with("per_device_")))
    }

    pub(crate) fn sequence(&self) -> Option<u64> {
        let nanogpt = || self.is_nanogpt().then_some(1024);
        self.number(Key::Sequence).or_else(|| self.number(Key::Positions)).or_else(nanogpt)
    }

    pub(crate) fn batch(&self) -> Option<u64> {
        self.number(Key::Batch).filter(|batch| (1..=1 << 24).contains(batch))
    }

    /// Batches gathered for one update: as set, as the log's tokens per iteration tell, or 1.
    pub(crate) fn accumulation(&self) -> u64 {
        let told = || {
            let tokens = self.log.tokens_per_iteration?;
            let one = self.batch()?.checked_mul(self.sequence()?)?;
            (one > 0 && tokens.is_multiple_of(one)).then(|| tokens / one)
        };
        self.number(Key::Accumulation).or_else(told).unwrap_or(1).max(1)
    }

    pub(crate) fn dtype(&self) -> Option<Dtype> {
        if self.is_on(Key::Bf16) == Some(true) {
            return Some(BF16);
        }
        if self.is_on(Key::Fp16) == Some(true) {
            return Some(FP16);
        }
        let nanogpt = || self.is_nanogpt().then_some(BF16);
        self.text(Key::Dtype).and_then(dtype_named).or_else(nanogpt)
    }

    pub(crate) fn vocabulary(&self) -> Option<u64> {
        self.number(Key::Vocabulary).or_else(|| self.is_nanogpt().then_some(50_304))
    }

    /// Height and width of whole frames.
    pub(crate) fn frame(&self) -> Option<(u64, u64)> {
        self.number(Key::FrameHeight).zip(self.number(Key::FrameWidth)).or(self.log.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logs_tell() {
        let mut facts = LogFacts::default();
        facts.note(
            "Overriding config with config/a.py:\nbatch_size = 64 # x\ntokens per iteration will be: \
            65,536\nnumber of parameters: 123.59M\nval frames 1920x1080\n",
        );
        assert_eq!(facts.number(Key::Batch), Some(64));
        assert_eq!(facts.tokens_per_iteration, Some(65_536));
        assert_eq!(facts.parameters, Some(123_590_000));
        assert_eq!(facts.frame, Some((1080, 1920)));
    }

    #[test]
    fn numbers_and_products() {
        assert_eq!(whole_number("5 * 8"), Some(40));
        assert_eq!(whole_number("1_000"), Some(1000));
        assert_eq!(whole_number("x"), None);
        assert_eq!(whole_number(&"9*".repeat(40)), None);
    }
}
