//! In how many bits the weights of a model are: by switches, and by the names of models.

use super::given::{is_spoken_of, turns_on};

/// Parts of names of models whose weights come in fewer bits, the longer ones first.
const NAMES: [&str; 15] = [
    "Int8", "int8", "FP8", "w8a8", "Q8_0", "AWQ", "awq", "GPTQ", "gptq", "4bit", "Int4", "int4", "w4a16", "Q4_", "IQ4_",
];
/// Switches of libraries for weights in 4 and 8 bits, and a setting that is given their number.
const SWITCHES: [(&str, &str); 2] = [("load_in_4bit", "4bit"), ("load_in_8bit", "8bit")];
const NUMBER: &str = "quantization_bit";
/// A type of 4 bits.
const FOUR: &str = "nf4";
/// What ways with 8 bits have in their names; the others have 4.
const EIGHT: [&str; 6] = ["fp8", "int8", "w8a8", "eetq", "8bit", "q8_"];

/// Words of which a line must have one to say anything of it.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(SWITCHES.map(|(name, _)| name)).chain([NUMBER, FOUR])
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

/// `Qwen2.5-7B-Instruct-AWQ`, `llama-70b.Q4_K_M.gguf`
pub(super) fn by_name(line: &str) -> Option<&'static str> {
    let is_in_name = |at: usize| line[..at].ends_with(['-', '.']) && at > 1;
    let is_named = |bits: &&&str| {
        let mut places = line.match_indices(**bits);
        places.any(|(at, name)| is_in_name(at) && !is_spoken_of(&line[..at], &line[at + name.len()..]))
    };
    NAMES.iter().find(is_named).copied()
}

/// The bits of a way, by its name.
pub(super) fn bits(way: &str) -> u64 {
    let way = way.to_ascii_lowercase();
    if EIGHT.iter().any(|name| way.contains(name)) { 8 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_and_names() {
        for (line, expected) in [
            ("load_in_4bit=True, bnb_4bit_quant_type=\"nf4\"", Some(4)),
            ("bnb_4bit_quant_type: nf4", Some(4)),
            ("unsloth/llama-3-8b-bnb-4bit", Some(4)),
            ("TheBloke/Llama-2-7B-GPTQ", Some(4)),
            ("--quantization_bit 8", Some(8)),
            ("load_in_8bit=True", Some(8)),
            ("llama-70b.Q8_0.gguf", Some(8)),
            ("load_in_4bit=False", None),
            ("load_in_4bit=False, bnb_4bit_quant_type='nf4'", None),
            ("You could try load_in_4bit=True", None),
            ("You could try Llama-2-7B-GPTQ", None),
        ] {
            assert_eq!(by_switch(line).or_else(|| by_name(line)).map(bits), expected, "{line}");
        }
    }
}
