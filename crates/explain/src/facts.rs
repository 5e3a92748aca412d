//! Configurations and log together, and what follows from them.

pub(crate) use crate::keys::Key;
use crate::keys::key_of_path;
use crate::log::Printout;
use crate::settled::Settled;
use lowtide_config::whole_number;
use lowtide_config::{Config, Setting, Syntax};

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

/// No size of a model or of a batch is larger; the product of two of them fits into 64 bits.
const LARGEST: u64 = (1 << 32) - 1;

/// Configurations and log together; a configuration counts before the log, a later one before an earlier one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) configs: &'a [Config],
    pub(crate) log: &'a Printout,
    /// Whether the stack goes through nanoGPT's `estimate_loss`.
    pub(crate) stack_is_nanogpt: bool,
}

/// What DeepSpeed fills in by itself.
pub(crate) const AUTO: &str = "auto";

/// The settings of a configuration that are about something, each with how far down the list of names it stands.
pub(crate) fn candidates(config: &Config, key: Key) -> impl Iterator<Item = (usize, &Setting)> {
    let is_deepspeed = is_deepspeed(config);
    config.settings.iter().filter(|setting| setting.value != AUTO).filter_map(move |setting| {
        let (known, rank) = key_of_path(&setting.path)?;
        let is_whole = is_deepspeed && setting.path == ["train_batch_size"];
        (known == key && !is_whole).then_some((rank, setting))
    })
}

/// Whether a configuration is DeepSpeed's, whose `train_batch_size` is the batch of all devices and steps together.
fn is_deepspeed(config: &Config) -> bool {
    config.syntax == Syntax::Json
        && config.settings.iter().any(|setting| {
            let first = setting.path.first().map(|name| &**name);
            matches!(
                first,
                Some(
                    "zero_optimization" | "train_micro_batch_size_per_gpu" | "steps_per_print" | "wall_clock_breakdown"
                )
            )
        })
}

/// DeepSpeed's `train_batch_size`.
pub(crate) fn whole_setting(config: &Config) -> Option<&Setting> {
    let is_whole = |setting: &&Setting| setting.path == ["train_batch_size"] && setting.value != AUTO;
    config.settings.iter().find(is_whole).filter(|_| is_deepspeed(config))
}

/// Layers, heads and width of the checkpoints nanoGPT begins from.
fn checkpoint_shape(name: &str) -> Option<[u64; 3]> {
    match name {
        "gpt2" => Some([12, 12, 768]),
        "gpt2-medium" => Some([24, 16, 1024]),
        "gpt2-large" => Some([36, 20, 1280]),
        "gpt2-xl" => Some([48, 25, 1600]),
        _ => None,
    }
}

impl<'a> Facts<'a> {
    /// The setting that says it, and which configuration it is in.
    pub(crate) fn find(&self, key: Key) -> Option<(&'a Config, &'a Setting)> {
        self.configs.iter().rev().find_map(|config| {
            let (_, best) = candidates(config, key).min_by_key(|(rank, _)| *rank)?;
            // Of settings with the same name the last one counts: scripts assign again, command lines repeat.
            let last = config.settings.iter().rev().find(|setting| setting.path == best.path)?;
            Some((config, last))
        })
    }

    /// Another setting with as good a claim to be this one: a list of stages, several models.
    pub(crate) fn rival(&self, key: Key) -> Option<&'a Setting> {
        let (config, found) = self.find(key)?;
        let rank = candidates(config, key).find(|(_, setting)| setting.path == found.path)?.0;
        candidates(config, key)
            .find(|(other, setting)| *other == rank && setting.path != found.path)
            .map(|(_, setting)| setting)
    }

    /// DeepSpeed's `train_batch_size`, which is what one update takes, where the micro-batch is set nowhere.
    pub(crate) fn whole_batch(&self) -> Option<(&'a Config, &'a Setting)> {
        let (config, setting) = self.configs.iter().rev().find_map(|config| Some((config, whole_setting(config)?)))?;
        self.find(Key::Batch).is_none().then_some((config, setting))
    }

    pub(crate) fn text(&self, key: Key) -> Option<&'a str> {
        self.find(key).map(|(_, setting)| &*setting.value).or_else(|| self.log.text(key))
    }

    pub(crate) fn number(&self, key: Key) -> Option<u64> {
        let at = match key {
            Key::Layers => Some(0),
            Key::Heads => Some(1),
            Key::Width => Some(2),
            _ => None,
        };
        // A checkpoint has its shape, whatever the settings say.
        let shape = at.and_then(|at| Some(checkpoint_shape(self.text(Key::InitFrom)?)?[at]));
        shape.or_else(|| self.text(key).and_then(whole_number)).filter(|number| *number <= LARGEST)
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
                && ["block_size", "n_embd", "eval_iters", "lr_decay_iters", "init_from"].iter().any(|name| has(name))
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

    /// Samples computed at once; as the log prints it where the configuration does not tell.
    pub(crate) fn batch(&self) -> Option<u64> {
        let whole = || {
            let whole = self.whole_batch().and_then(|(_, setting)| whole_number(&setting.value))?;
            let steps = match self.settled(Key::Accumulation) {
                Settled::Unclear(_) => return None,
                settled => settled.number().or_else(|| self.log.number(Key::Accumulation)).unwrap_or(1).max(1),
            };
            whole.is_multiple_of(steps).then(|| whole / steps)
        };
        let set = self.settled(Key::Batch).number();
        set.or_else(whole).or_else(|| self.log.number(Key::Batch)).filter(|batch| (1..=1 << 24).contains(batch))
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
        let checkpoint = || checkpoint_shape(self.text(Key::InitFrom)?).map(|_| 50_257);
        self.number(Key::Vocabulary).or_else(checkpoint).or_else(|| self.is_nanogpt().then_some(50_304))
    }

    /// Height and width of whole frames.
    pub(crate) fn frame(&self) -> Option<(u64, u64)> {
        let side = |key| self.number(key).filter(|side| (1..=1 << 16).contains(side));
        side(Key::FrameHeight).zip(side(Key::FrameWidth)).or(self.log.frame)
    }
}
