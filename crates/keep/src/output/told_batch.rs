//! What trainers themselves say of the batch of a step.

use std::fmt;

use lowtide_config::whole_number;
use memchr::memmem;
use serde::Serialize;

/// What a trainer said of the batch of a step, in its own unit. Every rung should say the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToldBatch {
    /// The number.
    pub number: u64,
    /// Its unit: `tokens`, `samples`.
    pub unit: &'static str,
}

/// The words before the number: nanoGPT's, and those of Hugging Face's Trainer.
const WORDS: [(&str, &str); 2] = [("tokens per iteration will be", "tokens"), ("Total train batch size", "samples")];

impl ToldBatch {
    /// Looks for one in whole lines of output.
    pub(crate) fn find(lines: &[u8]) -> Option<Self> {
        WORDS.iter().find_map(|(words, unit)| {
            let after = &lines[memmem::find(lines, words.as_bytes())? + words.len()..];
            let line = String::from_utf8_lossy(after.split(|byte| *byte == b'\n').next()?).into_owned();
            let start = line.find([':', '='])? + 1;
            let digits = line[start..].split_whitespace().next()?;
            Some(Self { number: whole_number(digits)?, unit })
        })
    }
}

impl fmt::Display for ToldBatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} for a step", self.number, self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_trainers_say_it() {
        let told = |text: &str| ToldBatch::find(text.as_bytes()).map(|told| told.to_string());
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(told("x\ntokens per iteration will be: 491,520\nbreaking 3\n"), said("491520 tokens for a step"));
        let trainer = "[INFO] >>   Total train batch size (w. parallel, distributed & accumulation) = 64\n";
        assert_eq!(told(trainer), said("64 samples for a step"));
        assert_eq!(told("tokens per iteration will be: many\n"), None);
        assert_eq!(told(""), None);
    }
}
