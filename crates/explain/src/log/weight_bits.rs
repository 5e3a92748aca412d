//! In how many bits the weights of a model are: by switches, by the way that a server was given, and by the names of models and their
//! files.

use super::given::{is_spoken_of, turns_on};

/// In how many bits weights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightBits {
    /// In 16, as they come.
    All,
    /// In 8 or fewer.
    Few(u64),
    /// In fewer, and nothing tells in how many.
    Open,
}

impl WeightBits {
    /// 4 or 8, the sizes in which weights come that adapters stand beside.
    pub(crate) const fn beside_adapters(self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::Few(..=4) => Some(4),
            Self::Few(_) | Self::Open => Some(8),
        }
    }
}

/// Switches of libraries for weights in 4 and 8 bits, and a setting that is given their number.
const SWITCHES: [(&str, &str); 2] = [("load_in_4bit", "4bit"), ("load_in_8bit", "8bit")];
const NUMBER: &str = "quantization_bit";
/// A type of 4 bits.
const FOUR: &str = "nf4";

/// Parts of names that say so by themselves, in lower case.
const MARKS: &[(&str, u64)] = &[
    ("int8", 8),
    ("fp8", 8),
    ("w8a8", 8),
    ("w8a16", 8),
    ("eetq", 8),
    ("int4", 4),
    ("fp4", 4),
    ("nvfp4", 4),
    ("mxfp4", 4),
    ("nf4", 4),
    ("w4a16", 4),
    ("w4a8", 4),
];
/// What types of numbers stand behind: `torch.int8`.
const LIBRARIES: &[&str] = &["torch.", "np.", "numpy.", "jnp.", "jax.", "tf.", "ml_dtypes."];
/// Ways that are mostly of 4 bits, where no other part of the name says more.
const WAYS: &[(&str, u64)] = &[("awq", 4), ("gptq", 4)];
/// Types of llama.cpp's files go on with one of these: `Q4_K_M`, `IQ2_XXS`, `q8_0`.
const TYPES: &[&str] = &["k", "0", "1", "xxs", "xs", "s", "m", "nl"];

/// What such names have in them, in the letters in which they are written.
const NAMES: &[&str] = &[
    "nt8", "NT8", "nt4", "NT4", "fp8", "FP8", "fp4", "FP4", "nf4", "NF4", "w8a", "W8A", "w4a", "W4A", "eetq", "EETQ",
    "awq", "AWQ", "gptq", "GPTQ", "2bit", "3bit", "4bit", "5bit", "6bit", "8bit", "Q1_", "Q2_", "Q3_", "Q4_", "Q5_",
    "Q6_", "Q8_", "q1_", "q2_", "q3_", "q4_", "q5_", "q6_", "q8_",
];

/// Words of which a line must have one to say anything of it.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied().chain(SWITCHES.map(|(name, _)| name)).chain([NUMBER, FOUR])
}

/// `load_in_4bit=True`, `--quantization_bit 4`, `quant_type: nf4`: what a line turns on.
pub(super) fn by_switch(line: &str) -> Option<&'static str> {
    if let Some((_, way)) = SWITCHES.iter().find(|(name, _)| turns_on(line, name)) {
        return Some(way);
    }
    let number = line.split_once(NUMBER).map(|(_, rest)| rest.trim_start_matches(['"', '\'', '=', ':', ' ']));
    match number.and_then(|rest| rest.bytes().next()) {
        Some(b'4') => Some("4bit"),
        Some(b'8') => Some("8bit"),
        // How weights in 4 bits would be stored says nothing beside a switch that is off.
        _ => (turns_on(line, FOUR) && !line.contains(SWITCHES[0].0)).then_some("4bit"),
    }
}

/// `Qwen2.5-7B-Instruct-AWQ`, `llama-70b.Q4_K_M.gguf`, `Llama-3.1-70B-FP8`: the bits that a name in a line says.
pub(super) fn by_name(line: &str) -> Option<u64> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    // Options and types of numbers are no names of models, and an optimizer's moments no weights.
    let is_type = |name: &str| LIBRARIES.iter().any(|library| name.starts_with(library));
    let is_name = |name: &&str| !name.starts_with('-') && !name.contains("adam") && !is_type(name);
    let is_given = |name: &&str| {
        let at = name.as_ptr().addr() - line.as_ptr().addr();
        !is_spoken_of(&line[..at], &line[at + name.len()..])
    };
    let names = || line.split(|c| !is_of_name(c)).filter(is_name);
    let by = |bits: fn(&str) -> Option<u64>| {
        names().filter(|name| bits_by(name, bits).is_some()).find(is_given).and_then(|name| bits_by(name, bits))
    };
    by(mark).or_else(|| by(way))
}

/// The bits that a part of a name says, but for the first one, which is the name itself.
fn bits_by(name: &str, bits: fn(&str) -> Option<u64>) -> Option<u64> {
    // Settings and functions are called with underscores, and some files are.
    let is_file = name.contains(".gguf");
    let mut starts = name.char_indices().filter(|(at, c)| *at > 0 && (matches!(c, '-' | '.') || *c == '_' && is_file));
    starts.find_map(|(at, _)| {
        let rest = &name[at + 1..];
        let word = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())];
        file_type(word, &rest[word.len()..]).or_else(|| bits(&word.to_ascii_lowercase()))
    })
}

/// `Q4` of `Q4_K_M`.
fn file_type(word: &str, rest: &str) -> Option<u64> {
    let digit = match word.as_bytes() {
        [b'q' | b'Q', digit] | [b'i' | b'I' | b't' | b'T', b'q' | b'Q', digit] => digit,
        _ => return None,
    };
    let kind = rest.strip_prefix('_')?.split(|c: char| !c.is_ascii_alphanumeric()).next()?.to_ascii_lowercase();
    (TYPES.contains(&&*kind) && (b'1'..=b'8').contains(digit)).then(|| u64::from(digit - b'0'))
}

fn mark(word: &str) -> Option<u64> {
    let of_list = || MARKS.iter().find(|(name, _)| *name == word).map(|(_, bits)| *bits);
    let of_bits = || match word.strip_suffix("bit").or_else(|| word.strip_suffix("bits"))?.parse() {
        Ok(bits @ 1..=8) => Some(bits),
        _ => None,
    };
    of_list().or_else(of_bits)
}

fn way(word: &str) -> Option<u64> {
    WAYS.iter().find(|(name, _)| *name == word).map(|(_, bits)| *bits)
}

/// The bits of a way that a server was given; none where the way may have any.
pub(super) fn of_way(way: &str) -> Option<u64> {
    let way = way.to_ascii_lowercase();
    let mut words = way.split(|c: char| !c.is_ascii_alphanumeric());
    let of_lists = |word: &str| mark(word).or_else(|| self::way(word));
    words.find_map(of_lists).or_else(|| match &*way {
        "int4wo" | "int4_weight_only" => Some(4),
        "bitsandbytes" | "squeezellm" | "marlin" => Some(4),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches() {
        for (line, expected) in [
            ("load_in_4bit=True, bnb_4bit_quant_type=\"nf4\"", Some("4bit")),
            ("bnb_4bit_quant_type: nf4", Some("4bit")),
            ("--quantization_bit 8", Some("8bit")),
            ("load_in_8bit=True", Some("8bit")),
            ("load_in_4bit=False", None),
            ("load_in_4bit=False, bnb_4bit_quant_type='nf4'", None),
            ("You could try load_in_4bit=True", None),
        ] {
            assert_eq!(by_switch(line), expected, "{line}");
        }
    }

    #[test]
    fn bits_of_names() {
        for (line, bits) in [
            ("vllm serve nvidia/Llama-3.1-70B-Instruct-FP8 --quantization modelopt", 8),
            ("vllm serve Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8 --quantization gptq", 8),
            ("vllm serve Qwen/Qwen2.5-7B-Instruct-AWQ", 4),
            ("TheBloke/Llama-2-7B-GPTQ", 4),
            ("mlx-community/some-32B-8bit", 8),
            ("mlx-community/some-32B-3bit", 3),
            ("unsloth/llama-3-8b-bnb-4bit", 4),
            ("RedHatAI/Llama-3.1-8B-quantized.w4a16", 4),
            ("llama-server -m llama-70b.Q4_K_M.gguf", 4),
            ("llama-server -m llama-70b.q4_0.gguf", 4),
            ("llama-server -m some_model_q5_k_m.gguf", 5),
            ("llama-server -m some-7B-UD-Q2_K_XL.gguf", 2),
            ("llama-server -m some-7B-IQ2_XXS.gguf", 2),
            ("llama-server -m some-7B-Q3_K_S-00001-of-00002.gguf", 3),
            ("ollama run llama3:8b-instruct-q6_K", 6),
        ] {
            assert_eq!(by_name(line), Some(bits), "{line}");
            assert!(NAMES.iter().any(|name| line.contains(name)), "{line}");
        }
        for line in [
            "python report.py sales-q4_2023.csv",
            "vllm serve Qwen/Qwen2.5-7B-Instruct",
            "--kv-cache-dtype fp8",
            "--kv_cache_int8 True",
            "AWQ and GPTQ are ways",
            "You could try Llama-2-7B-GPTQ",
            "a.gguf -ctk q8_0",
            "map[OLLAMA_KV_CACHE_TYPE:q8_0 OLLAMA_NUM_PARALLEL:1]",
            "void dequantize_block_q4_0<float>",
            "--enable-fp8 --optim paged-adamw-8bit",
            "type q4_K:  216 tensors",
            "64bit and x86-64",
            "mask dtype=torch.int8, other=np.int8",
        ] {
            assert_eq!(by_name(line), None, "{line}");
        }
    }

    #[test]
    fn bits_of_ways() {
        for (way, bits) in [
            ("awq", Some(4)),
            ("awq_marlin", Some(4)),
            ("gptq", Some(4)),
            ("bitsandbytes", Some(4)),
            ("bitsandbytes-nf4", Some(4)),
            ("fp8", Some(8)),
            ("eetq", Some(8)),
            ("w8a8_int8", Some(8)),
            ("modelopt", None),
            ("modelopt_fp4", Some(4)),
            ("compressed-tensors", None),
            ("gguf", None),
            ("torchao", None),
        ] {
            assert_eq!(of_way(way), bits, "{way}");
        }
    }
}
