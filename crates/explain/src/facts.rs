//! Configurations and log together, and what follows from them.

use lowtide_config::{Config, Setting, Syntax, whole_number};
use lowtide_core::Bytes;
use lowtide_log::{StackFrame, recomputes};
pub(crate) use lowtide_trainers::Key;
use lowtide_trainers::{Accumulation, Answer, Preset, Question, answer, candidates, flag, is_deepspeed, whole_batch};

use crate::culprit::is_size;
use crate::log::{Flags, Printout};

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

/// Lengths of samples are chosen in such steps.
const ROUND: u64 = 64;
/// No size of a model or of a batch is larger; the product of two of them fits into 64 bits.
const LARGEST: u64 = (1 << 32) - 1;

/// Configurations and log together; a configuration counts before the log, a later one before an earlier one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) configs: &'a [Config],
    pub(crate) log: &'a Printout,
    /// Flags of the log and of the configurations.
    pub(crate) flags: &'a Flags,
    /// The stack of the event.
    pub(crate) frames: &'a [StackFrame],
    /// Whether tensors were refused memory of the machine, so that it is the processor that computes.
    pub(crate) computes_on_host: bool,
    /// What logits were refused, where the stack ends at them.
    pub(crate) refused_logits: Option<Bytes>,
}

/// A model's own configuration tells how many positions it can have at most. Where these are more, samples are shorter as a rule,
/// and how much is for somebody else to say.
const USUAL_POSITIONS: u64 = 4096;

/// A fixed number of samples for each update, which a smaller micro-batch leaves as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FixedUpdate<'a> {
    pub(crate) name: &'a str,
    pub(crate) samples: Option<u64>,
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

/// `/home/me/nanoGPT/train.py`
fn is_of_nanogpt(file: &str) -> bool {
    let mut folders = file.rsplit(['/', '\\']).skip(1);
    folders.any(|folder| folder.get(..7).is_some_and(|name| name.eq_ignore_ascii_case("nanogpt")))
}

impl<'a> Facts<'a> {
    /// What the configurations say of a number: by the name that a trainer has for it, where its flags show.
    pub(crate) fn answer(&self, key: Key) -> Answer<'a> {
        let Some(preset) = self.preset(key) else { return answer(self.configs, Question::Key(key)) };
        let own = preset.answer(self.configs, key);
        // Lightning's data may have any name, and DeepSpeed has names of its own for what Hugging Face hands on.
        let has_others = preset == Preset::Lightning || self.configs.iter().any(is_deepspeed);
        if own == Answer::Absent && has_others { answer(self.configs, Question::Key(key)) } else { own }
    }

    /// The trainer that has a name of its own for a number.
    fn preset(&self, key: Key) -> Option<Preset> {
        matches!(key, Key::Batch | Key::Accumulation).then(|| Preset::find(self.configs)).flatten()
    }

    /// The setting that says it, and which configuration it is in.
    pub(crate) fn find(&self, key: Key) -> Option<(&'a Config, &'a Setting)> {
        if self.preset(key).is_some()
            && let Answer::Number { config, setting, .. } = self.answer(key)
        {
            return Some((config, setting));
        }
        self.configs.iter().rev().find_map(|config| {
            let (_, best) = candidates(config, Question::Key(key)).min_by_key(|(rank, _)| *rank)?;
            // Of settings with the same name the last one counts: scripts assign again, command lines repeat.
            let same = candidates(config, Question::Key(key)).map(|(_, setting)| setting);
            Some((config, same.filter(|it| it.path == best.path && it.scope == best.scope).last()?))
        })
    }

    /// How another batch is typed on the command line, where the script's flags for it are known and leave each update as it is.
    pub(crate) fn flags(&self, micro: u64, accumulation: u64) -> Option<String> {
        if self.is_nanogpt() {
            return Some(format!("--batch_size={micro} --gradient_accumulation_steps={accumulation}"));
        }
        let [batch, steps] = [Key::Batch, Key::Accumulation].map(|key| flag(self.configs, key).ok().flatten());
        let (batch, steps) = (batch?, steps?);
        let files: Vec<&Config> = self.configs.iter().collect();
        match lowtide_trainers::accumulation(&files, &steps.name, Some(&batch.name), &steps.name) {
            Ok(Accumulation::Cuts) => Some(steps.with(accumulation)),
            Ok(_) => Some(format!("{} {}", batch.with(micro), steps.with(accumulation))),
            Err(_) => None,
        }
    }

    /// Another setting with as good a claim to be this one: a list of stages, several models.
    pub(crate) fn rival(&self, key: Key) -> Option<&'a Setting> {
        if self.preset(key).is_some_and(|preset| preset.answer(self.configs, key) != Answer::Absent) {
            return None;
        }
        let (config, found) = self.find(key)?;
        let question = Question::Key(key);
        let rank = candidates(config, question).find(|(_, setting)| setting.path == found.path)?.0;
        // `batch_size=args.batch_size` passes on what is set in one place.
        candidates(config, question)
            .find(|(other, setting)| {
                *other == rank && setting.path != found.path && whole_number(&setting.value).is_some()
            })
            .map(|(_, setting)| setting)
    }

    /// DeepSpeed's `train_batch_size`, which is what one update takes, where the micro-batch is set nowhere.
    pub(crate) fn whole_batch(&self) -> Option<(&'a Config, &'a Setting)> {
        let (config, setting) = self.configs.iter().rev().find_map(|config| Some((config, whole_batch(config)?)))?;
        self.find(Key::Batch).is_none().then_some((config, setting))
    }

    /// What stands in another place too, where DeepSpeed's file and the trainer's own arguments say the same: both have to agree.
    pub(crate) fn change_besides(&self, patched: &str, micro: u64, accumulation: u64) -> Option<String> {
        if !self.configs.iter().any(is_deepspeed) {
            return None;
        }
        let others = self.configs.iter().filter(|config| config.name != patched);
        let settings = others.flat_map(|config| config.settings.iter().map(move |setting| (config, setting)));
        let changes = settings.filter_map(|(config, setting)| {
            let value = match setting.name()? {
                "train_micro_batch_size_per_gpu" | "per_device_train_batch_size" => micro,
                "gradient_accumulation_steps" => accumulation,
                _ => return None,
            };
            let is_other = whole_number(&setting.value).is_some_and(|number| number != value);
            is_other.then(|| format!("{} to {value} in {}", setting.path.join("."), config.name))
        });
        let changes: Vec<String> = changes.collect();
        (!changes.is_empty()).then(|| {
            format!(
                "DeepSpeed's file and the trainer's arguments have to agree: with the patch, set {} (or \"auto\" in DeepSpeed's file)",
                changes.join(" and ")
            )
        })
    }

    /// The batch of a whole update, where it is set beside the micro-batch and accumulation follows from both:
    /// Megatron's, litgpt's and DeepSpeed's way.
    pub(crate) fn fixed_update(&self) -> Option<FixedUpdate<'a>> {
        let Answer::Number { config, setting, .. } = self.answer(Key::Batch) else { return None };
        let is_micro = matches!(
            setting.name()?.to_ascii_lowercase().replace('-', "_").as_str(),
            "micro_batch_size" | "train_micro_batch_size_per_gpu" | "device_batch_size" | "per_device_train_batch_size"
        );
        if !is_micro || self.answer(Key::Accumulation) != Answer::Absent {
            return None;
        }
        let whole = self.find(Key::UpdateBatch).map(|(_, setting)| setting).or_else(|| whole_batch(config))?;
        Some(FixedUpdate { name: whole.name()?, samples: whole_number(&whole.value).filter(|samples| *samples > 0) })
    }

    /// Batches gathered for one update: as set, as the log tells, or 1; the reason where that is not known.
    pub(crate) fn accumulation(&self) -> Result<u64, String> {
        let one = self.batch().zip(self.sequence()).and_then(|(batch, sequence)| batch.checked_mul(sequence));
        let told = self.log.tokens_per_iteration.zip(one.filter(|one| *one > 0));
        let set = match self.answer(Key::Accumulation) {
            Answer::Number { number, .. } => Some(number),
            Answer::Unknown(why) => return Err(why),
            Answer::Absent => self.log.number(Key::Accumulation),
        };
        let steps = match (set, told) {
            (Some(set), _) => set.max(1),
            (None, Some((tokens, one))) => (tokens / one).max(1),
            (None, None) => 1,
        };
        let Some((tokens, one)) = told else { return Ok(steps) };
        let product = one.saturating_mul(steps);
        // Every process of a group adds its own tokens, where the script does not divide the steps among them.
        let is_told = tokens == product || self.log.is_group && tokens.is_multiple_of(product);
        match is_told {
            true => Ok(steps),
            false => Err(format!(
                "the log tells of {tokens} tokens per iteration, and {steps} batches of {one} tokens are {product}"
            )),
        }
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

    /// Whether this is nanoGPT, or a script after its model. A function of the same name as one of its own is no sign: lectures
    /// and exercises have them, with other sizes.
    pub(crate) fn is_nanogpt(&self) -> bool {
        let by_config = self.configs.iter().any(|config| {
            let has =
                |name: &str| config.settings.iter().any(|setting| setting.path.len() == 1 && setting.path[0] == name);
            config.syntax == Syntax::Python
                && has("batch_size")
                && ["block_size", "n_embd", "eval_iters", "lr_decay_iters", "init_from"].iter().any(|name| has(name))
        });
        let by_script = || Preset::find(self.configs) == Some(Preset::NanoGpt);
        let by_folder = || self.frames.iter().any(|frame| is_of_nanogpt(&frame.file));
        by_config || self.log.tokens_per_iteration.is_some() || by_script() || by_folder()
    }

    /// Whether Hugging Face's Trainer reads these settings.
    pub(crate) fn is_hugging_face(&self) -> bool {
        let name = self.find(Key::Batch).and_then(|(_, setting)| setting.path.last());
        name.is_some_and(|name| name.starts_with("per_device_"))
    }

    pub(crate) fn sequence(&self) -> Option<u64> {
        let nanogpt = || self.is_nanogpt().then_some(1024);
        let positions = || self.number(Key::Positions).filter(|positions| *positions <= USUAL_POSITIONS);
        self.number(Key::Sequence).or_else(|| self.sequence_of_logits()).or_else(positions).or_else(nanogpt)
    }

    /// Tokens of a sample, by logits that were refused: of the batch, as many rounded ones as make them as large.
    fn sequence_of_logits(&self) -> Option<u64> {
        let refused = self.refused_logits?;
        let token = self.vocabulary()?.checked_mul(self.batch()?).filter(|token| *token > 0)?;
        [FP32, BF16].into_iter().find_map(|dtype| {
            let bytes = token.checked_mul(dtype.bytes)?;
            let near = (refused.get() / bytes).checked_next_multiple_of(ROUND)?;
            let tokens = [near, near.saturating_sub(ROUND)];
            tokens.into_iter().find(|tokens| *tokens > 0 && is_size(tokens.saturating_mul(bytes), refused))
        })
    }

    /// Whether the processor computes: as the error shows, or as the settings say.
    pub(crate) fn is_on_cpu(&self) -> bool {
        let is_set =
            || self.text(Key::Device).is_some_and(|device| device.trim_matches(['"', '\'']).starts_with("cpu"));
        self.computes_on_host || is_set()
    }

    /// Samples computed at once; as the log prints it where the configuration does not tell.
    pub(crate) fn batch(&self) -> Option<u64> {
        let whole = || {
            let whole = self.whole_batch().and_then(|(_, setting)| whole_number(&setting.value))?;
            let steps = match self.answer(Key::Accumulation) {
                Answer::Unknown(_) => return None,
                answer => answer.number().or_else(|| self.log.number(Key::Accumulation)).unwrap_or(1).max(1),
            };
            whole.is_multiple_of(steps).then(|| whole / steps)
        };
        let set = self.answer(Key::Batch).number();
        set.or_else(whole).or_else(|| self.log.number(Key::Batch)).filter(|batch| (1..=1 << 24).contains(batch))
    }

    /// The type that is computed in: as set, as the log shows it turned on, or as weights are that are trained in it themselves.
    pub(crate) fn dtype(&self) -> Option<Dtype> {
        let set = self.set_dtype();
        let is_wide = set.is_none_or(|dtype| dtype == FP32);
        if is_wide && self.log.switches.half_training { Some(BF16) } else { set }
    }

    /// Whether it is computed in half precision already.
    pub(crate) fn computes_in_half(&self) -> bool {
        self.dtype().is_some_and(|dtype| dtype != FP32)
    }

    /// Whether the log says that the card has no bf16, so that a run with it does not compute in it.
    pub(crate) fn has_no_bf16(&self) -> bool {
        self.log.remarks.iter().any(|remark| remark.kind == "no_bf16")
    }

    fn set_dtype(&self) -> Option<Dtype> {
        let [bf16, fp16] = [Key::Bf16, Key::Fp16].map(|key| self.is_on(key));
        if bf16 == Some(true) {
            return Some(BF16);
        }
        if fp16 == Some(true) {
            return Some(FP16);
        }
        // nanoGPT computes in fp32 on a processor, whatever its dtype says.
        if self.is_nanogpt() && self.is_on_cpu() {
            return Some(FP32);
        }
        let is_off = [bf16, fp16] == [Some(false); 2];
        let named = self.text(Key::Dtype).and_then(dtype_named);
        let half = || self.log.switches.half_compute.filter(|_| !is_off).and_then(dtype_named);
        let nanogpt = || self.is_nanogpt().then_some(BF16);
        // Weights in fp32 are what half precision is computed beside.
        named.filter(|dtype| *dtype != FP32).or_else(half).or(named).or_else(nanogpt)
    }

    /// Whether activations are recomputed, by a configuration, the log or the stack. What a log prints may be of another run: a
    /// configuration counts before it.
    pub(crate) fn recomputes(&self) -> bool {
        let is_on = match self.find(Key::Recompute) {
            Some(_) => self.is_on(Key::Recompute) == Some(true),
            None => self.log.switches.recompute || self.log.narrative.recomputes,
        };
        is_on || self.frames.iter().any(recomputes)
    }

    /// Whether the loss is computed in pieces, by what is turned on or by the stack.
    pub(crate) fn chunks_loss(&self) -> bool {
        let is_piecewise = |frame: &StackFrame| {
            let names = ["linear_cross_entropy", "cut_cross_entropy"];
            names.iter().any(|name| frame.file.contains(name) || frame.function.contains(name))
        };
        self.log.switches.chunked_loss || self.frames.iter().any(is_piecewise)
    }

    /// How many tokens the model knows: what the program found counts before what is set, and that before a default.
    pub(crate) fn vocabulary(&self) -> Option<u64> {
        let checkpoint = || checkpoint_shape(self.text(Key::InitFrom)?).map(|_| 50_257);
        let nanogpt = || self.is_nanogpt().then_some(50_304);
        self.log.vocabulary.or_else(|| self.number(Key::Vocabulary)).or_else(checkpoint).or_else(nanogpt)
    }

    /// Height and width of whole frames.
    pub(crate) fn frame(&self) -> Option<(u64, u64)> {
        let side = |key| self.number(key).filter(|side| (1..=1 << 16).contains(side));
        side(Key::FrameHeight).zip(side(Key::FrameWidth)).or(self.log.frame)
    }
}

#[cfg(test)]
impl<'a> Facts<'a> {
    /// Configurations without a log.
    pub(crate) fn of(configs: &'a [Config]) -> Self {
        static NOTHING: std::sync::LazyLock<Printout> = std::sync::LazyLock::new(Printout::default);
        Self {
            configs,
            log: &NOTHING,
            flags: &NOTHING.flags,
            frames: &[],
            computes_on_host: false,
            refused_logits: None,
        }
    }
}
