//! The text that `gpt` trains on: built in, or files of tokens.

use lowtide_settings::{Origins, SettingsError};
use lowtide_torch::refuse_input;

use super::settings::{DataSettings, ModelSettings, Source};
use super::token_file::TokenFile;
use crate::text_source::{TextSource, VOCABULARY};

/// A source of samples, each a pure function of its number.
pub(crate) struct Text {
    seed: u64,
    length: usize,
    vocabulary: u32,
    tokens: Tokens,
}

enum Tokens {
    Synthetic(TextSource),
    Files { train: TokenFile, val: Option<TokenFile> },
}

/// Which samples are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those to train on.
    Train,
    /// Those to evaluate on.
    Eval,
}

/// Evaluation samples are numbered from here, far above any training sample.
const EVALUATION: u64 = 1 << 62;

impl Text {
    /// Opens the source; what is wrong with it names the setting.
    pub(crate) fn open(
        data: &DataSettings,
        model: &ModelSettings,
        seed: u64,
        origins: &Origins,
    ) -> Result<Text, SettingsError> {
        let refused = |key: &str, problem: String| SettingsError::refused(key, problem, origins);
        let length = model.block_size as usize + 1;
        let tokens = match data.source {
            Source::Synthetic if i64::from(model.vocab_size) < VOCABULARY => {
                let problem = format!("the built-in text has {VOCABULARY} tokens, so it must be at least {VOCABULARY}");
                return Err(refused("model.vocab_size", problem));
            }
            Source::Synthetic => Tokens::Synthetic(TextSource::new(seed)),
            Source::Tokens => {
                let open = |key: &str, path: &std::path::Path| {
                    TokenFile::open(path, length as u64).map_err(|error| refused(key, error.to_string()))
                };
                let train = data.train.as_deref().ok_or_else(|| {
                    refused("data.train", "the source `tokens` needs a file of tokens to train on".to_owned())
                })?;
                let val = data.val.as_deref().map(|path| open("data.val", path)).transpose()?;
                Tokens::Files { train: open("data.train", train)?, val }
            }
        };
        Ok(Text { seed, length, vocabulary: model.vocab_size, tokens })
    }

    /// Sample `number`: the tokens of a sample and the one that follows. A token that the model does not have ends the
    /// enclosing attempt.
    pub(crate) fn sample(&self, part: Part, number: u64) -> Vec<i64> {
        let number = if part == Part::Eval { EVALUATION + number } else { number };
        match &self.tokens {
            Tokens::Synthetic(source) => source.sample(number, self.length).into_iter().map(i64::from).collect(),
            Tokens::Files { train, val } => {
                let file = val.as_ref().filter(|_| part == Part::Eval).unwrap_or(train);
                match file.sample(self.seed, number, self.length, self.vocabulary) {
                    Ok(tokens) => tokens.into_iter().map(i64::from).collect(),
                    Err(error) => refuse_input(error),
                }
            }
        }
    }

    /// The least loss that any model can reach, where it is known.
    pub(crate) fn entropy(&self) -> Option<f64> {
        match &self.tokens {
            Tokens::Synthetic(source) => Some(source.entropy(self.length - 1)),
            Tokens::Files { .. } => None,
        }
    }
}
