//! Flags that a log or a command shows given to a program, each with its value, so that advice starts from there: what is on
//! already is not advised again, and what is to be less is less than what is there.
//!
//! A flag counts where a command, a list of settings, an environment or a call gives it. Messages and people recommend flags
//! too, in sentences: those are none that somebody gave.

use lowtide_oom::Sieve;

use super::given::{is_comment, is_off, is_spoken_of, turns_on};
use super::weight_bits::{self, WeightBits};

/// A setting that programs have under several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    /// The share of a card that a server takes.
    Share,
    /// Requests that a server computes at once.
    Requests,
    /// Tokens that a server computes at once.
    BatchTokens,
    /// Tokens of all requests at once.
    TotalTokens,
    /// The longest text of one request.
    Context,
    /// The type of the cache of keys and values.
    CacheType,
    FlashAttention,
    /// How a server's weights are in fewer bits.
    Quantization,
    /// In how many bits weights are by the name of the model.
    NamedBits,
    /// No CUDA graphs.
    Eager,
    /// Cards for one model.
    Cards,
    /// Layers on the card, the others being on the host.
    GpuLayers,
    /// Tokens that llama.cpp computes in one piece.
    PhysicalBatch,
    /// Programs that make pictures: parts of the model on the host, more of it, nearly all of it.
    MediumVram,
    LowVram,
    NoVram,
    /// Attention by a kernel that holds no scores.
    FusedAttention,
    /// Attention in slices.
    SlicedAttention,
    /// Diffusers: whole models on the host, or single layers of them.
    ModelOffload,
    LayerOffload,
    /// A decoder of pictures that works in tiles, or picture by picture.
    TiledDecoder,
    SlicedDecoder,
    /// How much of Apple's own limit PyTorch keeps to.
    Watermark,
    /// The share of a card that JAX takes.
    JaxShare,
    /// Whether JAX takes its share at the start.
    JaxPreallocation,
    /// PyTorch or TensorFlow in a program, to be seen by what it imports.
    OtherFramework,
    /// A web server for Python, and its processes.
    WebServer,
    WebWorkers,
    /// Texts that are turned into vectors at once.
    EncodeBatch,
}

/// What a flag was given: the last value of each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(Vec<(Flag, String)>);

/// No model is on more cards.
const MOST_CARDS: u64 = 1024;
/// Longer words are no flags.
const LONGEST_NAME: usize = 48;
/// Sentences by which programs say what is on.
const SENTENCES: &[(&str, Flag)] = &[
    ("gunicorn", Flag::WebServer),
    ("uvicorn", Flag::WebServer),
    ("hypercorn", Flag::WebServer),
    ("Set vram state to: LOW_VRAM", Flag::LowVram),
    ("Set vram state to: NO_VRAM", Flag::NoVram),
    ("Using pytorch attention", Flag::FusedAttention),
    ("Using pytorch cross attention", Flag::FusedAttention),
    ("Using xformers attention", Flag::FusedAttention),
    ("Using xformers cross attention", Flag::FusedAttention),
    ("Using sage attention", Flag::FusedAttention),
    ("Using split optimization for", Flag::SlicedAttention),
    ("Using split attention", Flag::SlicedAttention),
    ("Using sub quadratic optimization", Flag::SlicedAttention),
    ("attention optimization: xformers", Flag::FusedAttention),
    ("attention optimization: sdp", Flag::FusedAttention),
    ("attention optimization: sub-quadratic", Flag::SlicedAttention),
];

/// What trainers and libraries call attention by a kernel that holds no scores, as a switch or as a value.
const FUSED_ATTENTION: [&str; 7] = [
    "flash_attention_2",
    "flash_attention_3",
    "use_flash_attention_2",
    "use_flash_attention",
    "use_flash_attn",
    "flash_attention",
    "flash_attn",
];

/// How llama.cpp and ollama say how many layers went to the card, and a call by which TensorFlow is kept from the cards.
const OFFLOADED: [&str; 2] = ["layers.offload=", "offloaded "];
const HIDES_CARDS: &str = "set_visible_devices([]";

/// All words of sentences and names.
static WORDS: Sieve = Sieve::new(|| {
    let sentences = SENTENCES.iter().map(|(words, _)| *words);
    sentences.chain(weight_bits::words()).chain(OFFLOADED).chain(FUSED_ATTENTION).chain([HIDES_CARDS]).collect()
});

impl Flags {
    /// Looks at a line.
    pub(crate) fn note(&mut self, line: &str) {
        if WORDS.passes(line) {
            self.note_sentences(line);
        }
        if imports_another_framework(line) {
            self.set(Flag::OtherFramework, "true");
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let mut at = 0;
        while let Some(start) = line[at..].find(is_part).map(|found| at + found) {
            let end = line[start..].find(|c| !is_part(c)).map_or(line.len(), |found| start + found);
            at = end;
            if let Some((flag, value)) = given(line, start, end) {
                self.set(flag, value);
            }
        }
    }

    fn note_sentences(&mut self, line: &str) {
        for (words, flag) in SENTENCES {
            if line.contains(words) {
                self.set(*flag, "true");
            }
        }
        for words in OFFLOADED {
            let digits = line.split_once(words).map(|(_, rest)| leading_digits(rest)).unwrap_or_default();
            if !digits.is_empty() && (words.ends_with('=') || line.contains("layers to GPU")) {
                self.set(Flag::GpuLayers, digits);
            }
        }
        // Who reads data by TensorFlow hides the cards from it.
        if line.contains(HIDES_CARDS) {
            self.set(Flag::OtherFramework, "false");
        }
        if FUSED_ATTENTION.iter().any(|name| turns_on(line, name)) {
            self.set(Flag::FusedAttention, "true");
        }
        if let Some(way) = weight_bits::by_switch(line) {
            self.set(Flag::Quantization, way);
        }
        if let Some(bits) = weight_bits::by_name(line).filter(|_| self.value(Flag::NamedBits).is_none()) {
            self.set(Flag::NamedBits, &bits.to_string());
        }
    }

    /// The flags of a log, and those of commands and scripts, which count before it.
    pub(crate) fn with<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Self {
        let mut flags = self.clone();
        texts.flat_map(str::lines).for_each(|line| flags.note(line));
        flags
    }

    fn set(&mut self, flag: Flag, value: &str) {
        match self.0.iter_mut().find(|(known, _)| *known == flag) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((flag, value.to_owned())),
        }
    }

    /// What a flag was given.
    pub(crate) fn value(&self, flag: Flag) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == flag).map(|(_, value)| &**value)
    }

    /// The number that a flag was given; zero mostly stands for a server's own choice.
    pub(crate) fn number(&self, flag: Flag) -> Option<u64> {
        let is_possible = |number: &u64| *number > 0 && (flag != Flag::Cards || *number <= MOST_CARDS);
        self.value(flag)?.parse().ok().filter(is_possible)
    }

    /// In how many bits the weights are already: by the name of the model first, which says more than a way does.
    pub(crate) fn weight_bits(&self) -> WeightBits {
        if let Some(bits) = self.number(Flag::NamedBits) {
            return WeightBits::Few(bits);
        }
        match self.value(Flag::Quantization).filter(|way| !is_off(way)) {
            Some(way) => weight_bits::of_way(way).map_or(WeightBits::Open, WeightBits::Few),
            None => WeightBits::All,
        }
    }

    /// The part of a whole that a flag was given.
    pub(crate) fn share(&self, flag: Flag) -> Option<f64> {
        self.value(flag)?.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0)
    }

    /// Whether a flag is given, and with no word for off.
    pub(crate) fn is_on(&self, flag: Flag) -> bool {
        self.value(flag).is_some_and(|value| !is_off(value))
    }
}

/// `import torch`, `from tensorflow import keras`
fn imports_another_framework(line: &str) -> bool {
    let code = line.trim_start_matches(['>', '.', ' ']);
    let names = code.strip_prefix("import ").or_else(|| code.strip_prefix("from ")).unwrap_or_default();
    let is_word = |word: &str| matches!(word, "torch" | "tensorflow");
    names.split(|c: char| !c.is_alphanumeric() && c != '_').any(is_word)
}

fn leading_digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

/// The flag that a word of a line names, and what it is given there.
fn given(line: &str, start: usize, end: usize) -> Option<(Flag, &str)> {
    let word = &line[start..end];
    let name = word.trim_start_matches('-');
    let dashes = word.len() - name.len();
    if name.len() < 2 && dashes == 0 || name.len() > LONGEST_NAME {
        return None;
    }
    let flag = match dashes {
        0 if name == "batch_size" && line.contains(".encode(") => Flag::EncodeBatch,
        0 => of_setting(&name.to_ascii_lowercase())?,
        1 | 2 if is_web(line) && matches!(name, "w" | "workers") => Flag::WebWorkers,
        1 => of_letters(name).filter(|_| is_llama(line))?,
        _ => {
            let name = name.to_ascii_lowercase().replace('-', "_");
            of_option(&name).or_else(|| of_setting(&name))?
        }
    };
    let (before, after) = (&line[..start], &line[end..]);
    if let Some(value) = reckoned(after) {
        return Some((flag, value));
    }
    if before.ends_with('[') && dashes > 0 || is_comment(before, dashes > 0) || is_spoken_of(before, after) {
        return None;
    }
    let value = value(after, dashes)?;
    let is_good = if is_switch(flag) { dashes > 0 || matches!(value, "true" | "True" | "1") } else { is_value(value) };
    is_good.then_some((flag, value))
}

/// ` (0.90) = 21.28GiB`: the number with which a server works something out.
fn reckoned(after: &str) -> Option<&str> {
    let (number, rest) = after.strip_prefix(" (")?.split_once(')')?;
    let is_number = number.parse::<f64>().is_ok_and(f64::is_finite);
    (is_number && rest.trim_start().starts_with('=')).then_some(number)
}

/// What stands behind a name: `=64`, ` 64` behind an option, `': 64`, `()` of a call.
fn value(after: &str, dashes: usize) -> Option<&str> {
    if after.starts_with('(') {
        return Some("true");
    }
    let rest = after.trim_start_matches(['"', '\'', '`', ',', ']']);
    let (is_set, rest) = match rest.trim_start().strip_prefix(['=', ':']) {
        Some(rest) => (true, rest),
        None => (dashes > 0, rest),
    };
    // `PARAMETER num_ctx 8192`
    let is_number = || rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
    if !(is_set || rest.starts_with(' ') && is_number()) {
        return None;
    }
    let rest = rest.trim_start_matches([' ', '"', '\'', ',', '[']);
    let end =
        rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | '"' | '\'' | ')' | ']' | '}' | ';' | '`' | '|'));
    let value = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
    Some(if value.is_empty() || value.starts_with("--") { "true" } else { value })
}

/// Whether a text is what a setting is given, and no name of the next one.
fn is_value(value: &str) -> bool {
    let is_name = value.ends_with([':', '=']) || value.starts_with("OLLAMA_");
    !is_name && !matches!(value, "None" | "none" | "null" | "auto")
}

/// Flags that are on by themselves.
const fn is_switch(flag: Flag) -> bool {
    matches!(
        flag,
        Flag::Eager
            | Flag::MediumVram
            | Flag::LowVram
            | Flag::NoVram
            | Flag::FusedAttention
            | Flag::SlicedAttention
            | Flag::ModelOffload
            | Flag::LayerOffload
            | Flag::TiledDecoder
            | Flag::SlicedDecoder
            | Flag::FlashAttention
    )
}

/// Whether a line is a command of llama.cpp, whose options have one dash.
fn is_llama(line: &str) -> bool {
    ["llama", "gguf", "ggml", "koboldcpp"].iter().any(|word| line.contains(word))
}

/// Whether a line is a command of a web server.
fn is_web(line: &str) -> bool {
    ["gunicorn", "uvicorn", "hypercorn"].iter().any(|word| line.contains(word))
}

/// Names that are flags in any form: as options, as settings, as variables of the environment, as calls.
fn of_setting(name: &str) -> Option<Flag> {
    Some(match name {
        "gpu_memory_utilization"
        | "mem_fraction_static"
        | "cuda_memory_fraction"
        | "cache_max_entry_count"
        | "kv_cache_free_gpu_mem_fraction" => Flag::Share,
        "max_num_seqs" | "max_running_requests" | "ollama_num_parallel" | "max_batch_size" => Flag::Requests,
        "max_num_batched_tokens"
        | "chunked_prefill_size"
        | "max_batch_prefill_tokens"
        | "max_prefill_token_num"
        | "max_num_tokens" => Flag::BatchTokens,
        "max_batch_total_tokens" => Flag::TotalTokens,
        "max_model_len"
        | "max_seq_len"
        | "context_length"
        | "max_total_tokens"
        | "session_len"
        | "num_ctx"
        | "ollama_context_length"
        | "n_ctx"
        | "kvsize"
        | "ctx_size" => Flag::Context,
        "kv_cache_dtype" | "quant_policy" | "cache_type_k" | "ollama_kv_cache_type" => Flag::CacheType,
        "ollama_flash_attention" => Flag::FlashAttention,
        "enforce_eager" | "disable_cuda_graph" => Flag::Eager,
        "tensor_parallel_size" | "num_shard" => Flag::Cards,
        "n_gpu_layers" | "num_gpu" => Flag::GpuLayers,
        "ubatch_size" | "num_batch" | "n_ubatch" => Flag::PhysicalBatch,
        "enable_model_cpu_offload" => Flag::ModelOffload,
        "enable_sequential_cpu_offload" => Flag::LayerOffload,
        "enable_attention_slicing" => Flag::SlicedAttention,
        "enable_xformers_memory_efficient_attention" => Flag::FusedAttention,
        "enable_vae_tiling" | "enable_tiling" => Flag::TiledDecoder,
        "enable_vae_slicing" | "enable_slicing" => Flag::SlicedDecoder,
        "pytorch_mps_high_watermark_ratio" => Flag::Watermark,
        "xla_python_client_mem_fraction" | "xla_client_mem_fraction" => Flag::JaxShare,
        "xla_python_client_preallocate" => Flag::JaxPreallocation,
        "web_concurrency" => Flag::WebWorkers,
        _ => return None,
    })
}

/// Names that are flags as options only: as words of a sentence, or before a colon, they are of something else.
fn of_option(name: &str) -> Option<Flag> {
    Some(match name {
        "parallel" => Flag::Requests,
        "quantization" | "quantize" => Flag::Quantization,
        "flash_attn" => Flag::FlashAttention,
        "tp" | "tp_size" => Flag::Cards,
        "gpu_layers" => Flag::GpuLayers,
        "medvram" | "medvram_sdxl" => Flag::MediumVram,
        "lowvram" | "always_low_vram" => Flag::LowVram,
        "novram" | "always_no_vram" => Flag::NoVram,
        "xformers"
        | "opt_sdp_attention"
        | "opt_sdp_no_mem_attention"
        | "use_pytorch_cross_attention"
        | "attention_pytorch" => Flag::FusedAttention,
        "opt_sub_quad_attention" | "opt_split_attention" | "use_split_cross_attention" | "use_quad_cross_attention" => {
            Flag::SlicedAttention
        }
        _ => return None,
    })
}

/// Options of llama.cpp with one dash.
fn of_letters(name: &str) -> Option<Flag> {
    Some(match name {
        "ngl" => Flag::GpuLayers,
        "c" => Flag::Context,
        "fa" => Flag::FlashAttention,
        "ub" => Flag::PhysicalBatch,
        "np" => Flag::Requests,
        "ctk" => Flag::CacheType,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines_of_threads;

    #[test]
    fn a_line_without_the_words_has_no_sentence() {
        for line in lines_of_threads() {
            let mut flags = Flags::default();
            flags.note_sentences(&line);
            assert!(WORDS.is_match(&line) || flags.0.is_empty(), "{line}");
        }
    }

    fn of(line: &str) -> Flags {
        let mut flags = Flags::default();
        flags.note(line);
        flags
    }

    #[test]
    fn what_is_given() {
        for (line, flag, value) in [
            ("vllm serve m --max-num-seqs 64 --enforce-eager", Flag::Requests, "64"),
            ("args: Namespace(model='m', max_num_seqs=1024, quantization=None)", Flag::Requests, "1024"),
            ("['--model', 'm', '--max-num-seqs', '64']", Flag::Requests, "64"),
            ("--max_model_len=4096.", Flag::Context, "4096"),
            ("root@pod:/work# vllm serve m --max-num-seqs 64", Flag::Requests, "64"),
            ("llama-server -m a.gguf -ngl 40 -c 8192", Flag::Context, "8192"),
            ("llama-server -m a.gguf -ngl 40 -c 8192", Flag::GpuLayers, "40"),
            ("PARAMETER num_ctx 8192", Flag::Context, "8192"),
            ("PARAMETER num_ctx 131072", Flag::Context, "131072"),
            ("llama_context: n_ctx         = 8192", Flag::Context, "8192"),
            ("request={Operation:commit KvSize:8192 Parallel:1}", Flag::Context, "8192"),
            ("llama_context: n_ubatch      = 512", Flag::PhysicalBatch, "512"),
            (
                "the vLLM instance can use total_gpu_memory (23.65GiB) x gpu_memory_utilization (0.90) = 21.28GiB",
                Flag::Share,
                "0.90",
            ),
            ("load_in_8bit=True", Flag::Quantization, "8bit"),
            ("attn_implementation: flash_attention_2", Flag::FusedAttention, "true"),
            ("env=\"map[OLLAMA_FLASH_ATTENTION:true OLLAMA_KV_CACHE_TYPE:q8_0]\"", Flag::CacheType, "q8_0"),
            ("os.environ[\"XLA_PYTHON_CLIENT_MEM_FRACTION\"] = \".90\"", Flag::JaxShare, ".90"),
            ("export XLA_PYTHON_CLIENT_PREALLOCATE=false", Flag::JaxPreallocation, "false"),
            ("offloaded 20/33 layers to GPU", Flag::GpuLayers, "20"),
            ("$ gunicorn -w 8 app:app", Flag::WebWorkers, "8"),
            ("CMD uvicorn app:app --workers 4", Flag::WebWorkers, "4"),
            ("    vectors = model.encode(texts, batch_size=256)", Flag::EncodeBatch, "256"),
            ("vllm serve Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8 --quantization gptq", Flag::NamedBits, "8"),
            ("llama-server -m llama-70b.Q4_K_M.gguf", Flag::NamedBits, "4"),
            ("--tensor-parallel-size 2 --quantization awq", Flag::Quantization, "awq"),
        ] {
            assert_eq!(of(line).value(flag), Some(value), "{line}");
        }
    }

    #[test]
    fn no_model_is_on_more_cards_than_there_are() {
        assert_eq!(of("vllm serve m --tensor-parallel-size 4").number(Flag::Cards), Some(4));
        assert_eq!(of("vllm serve m --tensor-parallel-size 9999999999999999999").number(Flag::Cards), None);
    }

    #[test]
    fn what_is_on() {
        for (line, flag) in [
            ("Launching Web UI with arguments: --medvram --xformers", Flag::MediumVram),
            ("set COMMANDLINE_ARGS=--medvram --opt-sdp-attention", Flag::FusedAttention),
            ("I use --lowvram and it fails", Flag::LowVram),
            ("pipe.enable_model_cpu_offload()", Flag::ModelOffload),
            ("    pipe.vae.enable_tiling()", Flag::TiledDecoder),
            ("Set vram state to: NO_VRAM", Flag::NoVram),
            ("engine: enforce_eager=True, seed=0", Flag::Eager),
            ("$ OLLAMA_FLASH_ATTENTION=1 ollama serve", Flag::FlashAttention),
        ] {
            assert!(of(line).is_on(flag), "{line}");
        }
    }

    #[test]
    fn what_is_only_spoken_of() {
        for (line, flag) in [
            ("Please try lowering `max_num_seqs` or `gpu_memory_utilization` when", Flag::Requests),
            ("Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory", Flag::Watermark),
            ("you could start with --medvram", Flag::MediumVram),
            ("Add --lowvram to the arguments", Flag::LowVram),
            ("without --xformers it is slower", Flag::FusedAttention),
            ("usage: launch.py [--medvram] [--lowvram]", Flag::MediumVram),
            ("xformers: 0.0.20", Flag::FusedAttention),
            ("# pipe.enable_model_cpu_offload()", Flag::ModelOffload),
            ("    def enable_tiling(self):", Flag::TiledDecoder),
            ("engine: enforce_eager=False, seed=0", Flag::Eager),
            ("max_num_seqs=None, kv_cache_dtype=auto", Flag::Requests),
            ("max_num_seqs=None, kv_cache_dtype=auto", Flag::CacheType),
            ("OLLAMA_KV_CACHE_TYPE: OLLAMA_LLM_LIBRARY:", Flag::CacheType),
            ("tar -c 20 files", Flag::Context),
            ("python train.py --workers 8", Flag::WebWorkers),
        ] {
            assert!(!of(line).is_on(flag), "{line}");
        }
    }
}
