//! The size of a model as a run prints it: parameters, those that are trained, the vocabulary.

/// How many parameters a line tells of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) all: Option<u64>,
    pub(super) trained: Option<u64>,
}

/// `number of parameters: 123.59M`, `27.8M params`, `with 124,354,560 parameters`, `27.8 M    Total params`, and peft's
/// `trainable params: 4,194,304 || all params: 6,742,609,920`.
pub(super) fn parameters(line: &str) -> Option<Parameters> {
    if !line.contains("aram") && !line.contains("ARAM") {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let says = ["parameters:", "params:", " params", "m params", "b params", " parameters"];
    let is_other = ["tensors", "non-trainable", "hyperparam"].iter().any(|words| lower.contains(words));
    if is_other || !says.iter().any(|words| lower.contains(words)) {
        return None;
    }
    if let Some((trained, all)) = lower.split_once("all params:") {
        return Some(Parameters { all: count(all), trained: count(trained) });
    }
    if let Some((trained, all)) = trained_of_all(&lower) {
        return Some(Parameters { all: Some(all), trained: Some(trained) });
    }
    let number = Some(count(&lower)?);
    match lower.contains("trainable") {
        true => Some(Parameters { all: None, trained: number }),
        false => Some(Parameters { all: number, trained: None }),
    }
}

/// mlx-lm's `Trainable parameters: 0.039% (1.278M/3237.1M)` and Unsloth's `Trainable parameters = 41,943,040 of 8,072,204,288`.
fn trained_of_all(lower: &str) -> Option<(u64, u64)> {
    let (_, rest) = lower.split_once("trainable param")?;
    [" of ", "/"].into_iter().find_map(|between| {
        let (trained, all) = rest.split_once(between)?;
        Some((count(trained)?, count(all)?)).filter(|(trained, all)| trained <= all)
    })
}

/// The first number that may count the parameters of a model: `124,354,560`, `123.59m`, `27.8 m`.
fn count(text: &str) -> Option<u64> {
    let is_gap = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '=');
    // `14:04:32,729` is a clock.
    let is_clock =
        |word: &&str| word.split_once(':').is_some_and(|(head, _)| head.ends_with(|c: char| c.is_ascii_digit()));
    let words = text.split(is_gap).filter(|word| !is_clock(word)).flat_map(|word| word.split(':'));
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        let scale = |unit: &str| match unit {
            "k" => Some(1e3),
            "m" | "million" => Some(1e6),
            "b" | "billion" => Some(1e9),
            _ => None,
        };
        let unit = word.char_indices().next_back().map_or(word.len(), |(at, _)| at);
        let (digits, scale) = match scale(&word[unit..]) {
            Some(scale) => (&word[..unit], scale),
            None => (word, words.peek().and_then(|next| scale(next)).unwrap_or(1.0)),
        };
        let Ok(number) = digits.replace(',', "").parse::<f64>() else { continue };
        let count = number * scale;
        if count.is_finite() && (1e4..1e13).contains(&count) {
            return Some(count as u64);
        }
    }
    None
}

/// `found vocab_size = 65 (inside data/shakespeare_char/meta.pkl)`, `defaulting to vocab_size of GPT-2 to 50304`,
/// `Vocab size: 32,000`.
pub(super) fn vocabulary(line: &str) -> Option<u64> {
    let (_, rest) = ["vocab_size", "ocab size", "ocabulary size"].iter().find_map(|words| line.split_once(words))?;
    let near: String = rest.chars().take(40).filter(|c| *c != ',').collect();
    let numbers = near.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
    // GPT-2 has a number in its name; no vocabulary is as small.
    numbers.into_iter().find(|number| (16..1 << 24).contains(number))
}

/// Models of experts whose names give the parameters that a token takes, and not all that are held, in lower case.
const OF_EXPERTS: [(&str, f64); 3] = [("17b-16e", 109e9), ("17b-128e", 402e9), ("qwen1.5-moe-a2.7b", 14.3e9)];
/// What `8x7B` has of the product: experts share attention and embeddings.
const OF_PRODUCT: f64 = 0.83;

/// Parameters by the name of a model: `Llama-2-7b-hf`, `opt-13b`, `Qwen1.5-0.5B-Chat`, and of all experts in `Mixtral-8x7B`.
pub(super) fn named_parameters(line: &str) -> Option<u64> {
    let bytes = line.as_bytes();
    let mut ends = memchr::memchr2_iter(b'b', b'B', bytes).peekable();
    ends.peek()?;
    let lower = line.to_ascii_lowercase();
    if let Some((_, all)) = OF_EXPERTS.iter().find(|(name, _)| lower.contains(name)) {
        return Some(*all as u64);
    }
    ends.find_map(|at| {
        let is_end = bytes.get(at + 1).is_none_or(|next| !next.is_ascii_alphanumeric());
        let (start, number) = number_before(line, at)?;
        let (start, number) = match bytes[..start].last() {
            Some(b'x' | b'X') => number_before(line, start - 1)
                .map(|(start, experts)| (start, (experts * number * OF_PRODUCT * 10.0).round() / 10.0))?,
            _ => (start, number),
        };
        let before = bytes[..start].last()?;
        let is_named = is_end && matches!(before, b'-' | b'_' | b'/');
        (is_named && (0.05..2000.0).contains(&number)).then_some((number * 1e9) as u64)
    })
}

/// The number that ends at a place of a line, and where it begins.
fn number_before(line: &str, end: usize) -> Option<(usize, f64)> {
    let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let digits = line.as_bytes()[..end].iter().rev().take_while(is_part).count();
    let number = line[end - digits..end].parse().ok().filter(|_| digits <= 5)?;
    Some((end - digits, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_as_programs_print_them() {
        let read = |line: &str| parameters(line).map(|found| (found.all, found.trained));
        for (line, expected) in [
            ("number of parameters: 123.59M", Some((Some(123_590_000), None))),
            ("number of parameters: 0.80M", Some((Some(800_000), None))),
            ("UNet with 27.8M params, grid 64", Some((Some(27_800_000), None))),
            ("27.8 M    Total params", Some((Some(27_800_000), None))),
            ("0         Non-trainable params", None),
            ("Number of trainable parameters = 124,439,808", Some((None, Some(124_439_808)))),
            (
                "trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.0622",
                Some((Some(6_742_609_920), Some(4_194_304))),
            ),
            (
                "[INFO|trainer.py:1730] 2024-02-29 14:04:32,729 >>   Number of trainable parameters = 2,779,683,840",
                Some((None, Some(2_779_683_840))),
            ),
            ("Trainable parameters: 0.039% (1.278M/3237.1M)", Some((Some(3_237_100_000), Some(1_278_000)))),
            (
                "Trainable parameters = 41,943,040 of 8,072,204,288 (0.52% trained)",
                Some((Some(8_072_204_288), Some(41_943_040))),
            ),
            (
                " Trainable parameters = 41,943,040/8,072,204,288 (0.52% trained)",
                Some((Some(8_072_204_288), Some(41_943_040))),
            ),
            ("num decayed parameter tensors: 50, with 124,354,560 parameters", None),
            ("loading parameters", None),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn models_are_named_by_their_size() {
        for (line, expected) in [
            ("Loading meta-llama/Llama-2-7b-hf", Some(7_000_000_000)),
            ("--model Qwen/Qwen1.5-0.5B-Chat", Some(500_000_000)),
            ("facebook/opt-13b", Some(13_000_000_000)),
            ("mistralai/Mixtral-8x7B-Instruct-v0.1", Some(46_500_000_000)),
            ("mistralai/Mixtral-8x22B-v0.1", Some(146_100_000_000)),
            ("Qwen/Qwen3-30B-A3B", Some(30_000_000_000)),
            ("openai/gpt-oss-120b", Some(120_000_000_000)),
            ("meta-llama/Llama-4-Scout-17B-16E-Instruct", Some(109_000_000_000)),
            ("a picture of 8x7b, 4x", None),
            ("tensor of 7b values, 12-bit, x-4bit, v1.2b3, a-b", None),
            ("b", None),
        ] {
            assert_eq!(named_parameters(line), expected, "{line}");
        }
    }

    #[test]
    fn vocabularies_as_programs_print_them() {
        for (line, expected) in [
            ("found vocab_size = 65 (inside data/shakespeare_char/meta.pkl)", Some(65)),
            ("defaulting to vocab_size of GPT-2 to 50304 (50257 rounded up for efficiency)", Some(50_304)),
            ("Vocab size: 32,000", Some(32_000)),
            ("vocab_size", None),
        ] {
            assert_eq!(vocabulary(line), expected, "{line}");
        }
    }
}
