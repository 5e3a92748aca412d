//! The batch of a step, as trainers print it themselves.
//!
//! Where trainers say the batch of a step themselves, what starts print is compared.

use std::fmt;

use memchr::memmem;
use serde::Serialize;

use crate::number::leading_number;

/// What a trainer printed of the batch of a step, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BatchReport {
    /// The number.
    pub number: u64,
    /// What it counts.
    pub unit: BatchUnit,
}

/// What the number of a [`BatchReport`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchUnit {
    /// Tokens of all sequences.
    Tokens,
    /// Samples.
    Samples,
}

/// The words before the number: nanoGPT's, and those of Hugging Face's Trainer.
const WORDS: [(&str, BatchUnit); 2] =
    [("tokens per iteration will be", BatchUnit::Tokens), ("Total train batch size", BatchUnit::Samples)];

impl BatchReport {
    /// Looks for the last one in whole lines of a log.
    #[must_use]
    pub fn find(text: &[u8]) -> Option<Self> {
        WORDS.iter().find_map(|(words, unit)| {
            let after = &text[memmem::find_iter(text, words).last()? + words.len()..];
            let line = after.split(|byte| *byte == b'\n').next()?;
            let start = line.iter().position(|byte| matches!(byte, b':' | b'='))? + 1;
            let (number, rest) = leading_number(line[start..].trim_ascii_start())?;
            rest.first().is_none_or(u8::is_ascii_whitespace).then_some(Self { number, unit: *unit })
        })
    }
}

impl fmt::Display for BatchReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            BatchUnit::Tokens => "tokens",
            BatchUnit::Samples => "samples",
        };
        write!(out, "{} {unit} for a step", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_trainers_print_it() {
        let printed = |text: &str| BatchReport::find(text.as_bytes()).map(|report| report.to_string());
        let expected = |text: &str| Some(text.to_owned());
        let nanogpt = "x\ntokens per iteration will be: 491,520\nbreaking 3\n";
        assert_eq!(printed(nanogpt), expected("491520 tokens for a step"));
        let trainer = "[INFO] >>   Total train batch size (w. parallel, distributed & accumulation) = 64\n";
        assert_eq!(printed(trainer), expected("64 samples for a step"));
        for text in ["tokens per iteration will be: many\n", "tokens per iteration will be: 1.5\n"] {
            assert_eq!(printed(text), None);
        }
        assert_eq!(printed(""), None);
    }
}
