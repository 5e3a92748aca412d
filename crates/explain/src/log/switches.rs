//! What a run has turned on already, so that nobody is advised to turn it on again.
//!
//! A switch counts where a command, a configuration or a line of code gives it a value. Messages recommend switches too,
//! and pages talk of them: a recommendation is none that somebody followed.

use lowtide_oom::Sieve;

use super::given::{is_comment, is_spoken_of, turns_on};
use super::narrative::is_of;
use super::sharing::{self, SharingSwitches};

/// Switches that a log shows turned on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    /// PyTorch's allocator may let its segments grow.
    pub(crate) expandable_segments: bool,
    /// The allocator splits no blocks above so many MiB.
    pub(crate) max_split: Option<u64>,
    /// The optimizer keeps its moments in 8 bits.
    pub(crate) eight_bit_moments: bool,
    /// Activations are recomputed in backward.
    pub(crate) recompute: bool,
    /// Weights are loaded in half precision.
    pub(crate) half_weights: bool,
    /// Weights that are trained are in half precision themselves, with their gradients and moments.
    pub(crate) half_training: bool,
    /// The half precision that is computed in.
    pub(crate) half_compute: Option<&'static str>,
    /// The loss is computed in pieces.
    pub(crate) chunked_loss: bool,
    /// What is shared out among the cards, and what lies on the host.
    pub(crate) sharing: SharingSwitches,
}

/// What the allocator's switches are called.
const EXPANDABLE: &str = "expandable_segments:True";
const MAX_SPLIT: &str = "max_split_size_mb:";
/// Optimizers that keep their moments in 8 bits, in lower case, and the flags of scripts for them.
const EIGHT_BIT: &[&str] = &[
    "adamw_8bit",
    "adamw_bnb_8bit",
    "adamw8bit",
    "adam8bit",
    "adam_8bit",
    "lion_8bit",
    "lion8bit",
    "adafactor_8bit",
    "use_8bit_adam",
];
/// What recomputing is called by scripts and libraries.
const RECOMPUTE: &[&str] = &[
    "gradient_checkpointing_enable",
    "gradient_checkpointing",
    "gradient-checkpointing",
    "activation_checkpointing",
    "activation-checkpointing",
];
/// What computing in half precision is called.
const HALF_COMPUTE: &[&str] = &["bf16", "fp16"];
/// What a loss in pieces is called.
const CHUNKED_LOSS: &[&str] =
    &["use_liger_kernel", "enable_liger_kernel", "use_liger", "liger_fused_linear_cross_entropy"];
/// Types of half precision, as code and settings write them.
const HALF: &[&str] = &["float16", "bfloat16", "half", "fp16", "bf16"];

/// What the names of switches have in them.
const NAMES: [&str; 11] =
    [EXPANDABLE, MAX_SPLIT, "8BIT", "8Bit", "heckpointing", "dtype", ".half()", "-true", "bf16", "fp16", "liger"];
static WORDS: Sieve = Sieve::new(|| [&NAMES[..], &sharing::words()].concat());

impl Switches {
    /// Looks at a line.
    pub(crate) fn note(&mut self, line: &str) {
        if WORDS.passes(line) {
            self.note_words(line);
        } else {
            self.sharing.note_within(line);
        }
    }

    fn note_words(&mut self, line: &str) {
        self.expandable_segments |= value_behind(line, EXPANDABLE).is_some();
        self.max_split = max_split(line).or(self.max_split);
        let lower = || line.to_ascii_lowercase();
        let is_named = |name: &str| line.contains(name);
        if is_named("8bit") || is_named("8BIT") || is_named("8Bit") {
            self.eight_bit_moments |= EIGHT_BIT.iter().any(|name| turns_on(&lower(), name));
        }
        if is_named("heckpointing") {
            self.recompute |= RECOMPUTE.iter().any(|name| turns_on(line, name));
        }
        if is_named("dtype") || is_named(".half()") {
            self.half_weights |= loads_in_half(line);
            self.half_training |= trains_in_half(line);
        }
        if is_named("pure_bf16") || is_named("-true") {
            self.half_training |= turns_on(line, "pure_bf16") || turns_on(line, "bf16-true");
        }
        if is_named("bf16") || is_named("fp16") {
            let is_mixed = || line.contains("mixed_precision") && !line.contains("[--");
            let is_on = |name: &&&'static str| turns_on(line, name) && (is_flag(line, name) || is_mixed());
            self.half_compute = HALF_COMPUTE.iter().find(is_on).copied().or(self.half_compute);
        }
        if is_named("liger") {
            self.chunked_loss |= CHUNKED_LOSS.iter().any(|name| turns_on(line, name));
        }
        self.sharing.note(line);
    }
}

/// What stands behind a switch of the allocator that a line sets: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python
/// train.py`, and the same in an export or in Python; PyTorch's messages recommend it in nearly the same words.
fn value_behind<'l>(line: &'l str, switch: &str) -> Option<&'l str> {
    let (before, after) = line.split_once(switch)?;
    let (lead, _) = before.rsplit_once("PYTORCH_")?;
    // A message that a terminal broke may begin a line with it.
    let is_alone = lead.trim().is_empty() && after.trim().is_empty() && before.contains('=');
    let goes_on = after.trim_start().starts_with("against");
    let is_set = before.contains("ALLOC_CONF") && !is_spoken_of(lead, after) && !is_alone && !goes_on;
    is_set.then_some(after)
}

/// `PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128`
fn max_split(line: &str) -> Option<u64> {
    let value = value_behind(line, MAX_SPLIT)?.trim_start();
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value[..end].parse().ok()
}

/// Whether a name is one of a setting, and not the value of another.
fn is_flag(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let rest = line[at + name.len()..].trim_start_matches(['"', '\'']);
        line[..at].ends_with("--") || rest.trim_start().starts_with(['=', ':'])
    })
}

/// `torch_dtype=torch.float16`, `.half()`: the type that weights are loaded in, not the one that is computed in.
fn loads_in_half(line: &str) -> bool {
    let is_typed = line.match_indices("dtype").any(|(at, name)| {
        let before = line[..at].trim_end_matches("torch_");
        let value = line[at + name.len()..].trim_start_matches(['"', '\'', '=', ':', ' ']);
        let value = value.strip_prefix("torch.").unwrap_or(value);
        let word = value.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && is_of(HALF, word)
    });
    let is_called = [".half()", ").half()"].iter().any(|call| {
        let mut places =
            line.match_indices(call).filter(|(at, _)| call.starts_with(')') || line[..*at].ends_with("model"));
        places.any(|(at, _)| !is_comment(&line[..at], false))
    });
    is_called || is_typed && !line.contains("autocast")
}

/// `from_pretrained(name, torch_dtype=torch.bfloat16)`, `--torch_dtype bfloat16`; a model's own configuration, which programs
/// print, says only how its weights are stored.
fn trains_in_half(line: &str) -> bool {
    let is_given = line.contains("from_pretrained(") || line.contains("torch_dtype") && !line.contains("torch_dtype\"");
    is_given && (loads_in_half(line) || HALF.iter().any(|half| line.contains(&format!("--torch_dtype {half}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines_of_threads;

    #[test]
    fn a_line_without_the_words_turns_nothing_on() {
        for line in lines_of_threads() {
            let mut switches = Switches::default();
            switches.note_words(&line);
            assert!(WORDS.is_match(&line) || switches == Switches::default(), "{line}");
        }
    }

    fn of(line: &str) -> Switches {
        let mut switches = Switches::default();
        switches.note(line);
        switches
    }

    #[test]
    fn segments_that_may_grow() {
        for line in [
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
            "$ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "+ export PYTORCH_ALLOC_CONF=\"expandable_segments:True\"",
            "os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\"",
            "  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True",
            "It fails with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True as well.",
        ] {
            assert!(of(line).expandable_segments, "{line}");
        }
        for line in [
            "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation",
            "> PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "PyTorch recommends `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` here.",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
        ] {
            assert!(!of(line).expandable_segments, "{line}");
        }
    }

    #[test]
    fn blocks_that_are_kept_whole() {
        for line in [
            "export PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.6,max_split_size_mb:128",
            "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 python train.py",
            "os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"max_split_size_mb:128\"",
        ] {
            assert_eq!(of(line).max_split, Some(128), "{line}");
        }
        for line in [
            "try setting max_split_size_mb to avoid fragmentation.  See documentation for PYTORCH_CUDA_ALLOC_CONF",
            "You could try PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 there.",
        ] {
            assert_eq!(of(line).max_split, None, "{line}");
        }
    }

    #[test]
    fn moments_in_8_bits() {
        for line in [
            "optim=OptimizerNames.ADAMW_8BIT,",
            "--optim paged_adamw_8bit --bf16",
            "optim: adamw_bnb_8bit",
            "optimizer = bnb.optim.AdamW8bit(model.parameters())",
            "train.py --use_8bit_adam --rank 4",
            "Namespace(use_8bit_adam=True, rank=4)",
            "--optimizer_type adamw8bit",
        ] {
            assert!(of(line).eight_bit_moments, "{line}");
        }
        for line in ["Namespace(use_8bit_adam=False, rank=4)", "load_in_8bit=True", "AdamW8bit is an optimizer of it"] {
            assert!(!of(line).eight_bit_moments, "{line}");
        }
    }

    #[test]
    fn activations_that_are_recomputed() {
        for line in [
            "train.py --gradient_checkpointing --rank 4",
            "--gradient_checkpointing True",
            "gradient_checkpointing = True",
            "gradient_checkpointing=true,",
            "'--train_batch_size=1', '--gradient_checkpointing']'",
            "model.gradient_checkpointing_enable()",
        ] {
            assert!(of(line).recompute, "{line}");
        }
        for line in [
            "gradient_checkpointing=False",
            "--gradient_checkpointing false",
            "No gradient checkpointing",
            "def gradient_checkpointing_func(x):",
            "Is there a plan for gradient_checkpointing there?",
            "--disable_gradient_checkpointing",
            "train.py --no-gradient-checkpointing --lr 1",
            "# model.gradient_checkpointing_enable()",
        ] {
            assert!(!of(line).recompute, "{line}");
        }
    }

    #[test]
    fn training_in_half_precision_itself() {
        for line in [
            "model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)",
            "train.py --torch_dtype bfloat16 --lr 1",
            "precision: bf16-true",
            "--pure_bf16 --lr 1",
        ] {
            assert!(of(line).half_training, "{line}");
        }
        for line in ["dtype = 'bfloat16'", "  \"torch_dtype\": \"bfloat16\",", "--bf16", "torch_dtype=torch.float32"] {
            assert!(!of(line).half_training, "{line}");
        }
    }

    #[test]
    fn what_a_training_has_on() {
        for line in ["train.py --bf16 --lr 1", "--fp16 True", "bf16=True,", "'mixed_precision: bf16'", "fp16: true"] {
            assert!(of(line).half_compute.is_some(), "{line}");
        }
        for line in ["bf16=False", "usage: train.py [--bf16]", "torch_dtype=bf16", "should I take bf16?"] {
            assert_eq!(of(line).half_compute, None, "{line}");
        }
        assert!(of("--use_liger_kernel True").chunked_loss && !of("use_liger_kernel=False").chunked_loss);
    }

    #[test]
    fn weights_in_half_precision() {
        for line in [
            "model = AutoModel.from_pretrained(name, torch_dtype=torch.float16, device_map=0)",
            "from_pretrained(name, dtype=torch.bfloat16)",
            "model = model.half().cuda()  # model.half()",
        ] {
            assert!(of(line).half_weights, "{line}");
        }
        for line in [
            "with torch.autocast(\"cuda\", dtype=torch.bfloat16):",
            "bnb_4bit_compute_dtype=torch.bfloat16",
            "x = 1  # model.half()",
            "torch_dtype=torch.float32",
        ] {
            assert!(!of(line).half_weights, "{line}");
        }
    }
}
