//! Tokens in a file, as nanoGPT writes them: `uint16`, little-endian, nothing else. Read by offset, never whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lowtide_generators::Random;

/// An open file of tokens.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    file: File,
    tokens: u64,
}

/// What can be wrong with one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenFileError {
    /// It could not be opened or read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its length is no whole number of tokens.
    #[error("{}: {bytes} bytes are no whole number of 2-byte tokens", path.display())]
    Odd {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// It holds less than one sample.
    #[error("{}: {tokens} tokens are fewer than a sample's {needed}", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Tokens in it.
        tokens: u64,
        /// Tokens in a sample, with the one that follows it.
        needed: u64,
    },
    /// It holds a token that the model does not have.
    #[error("{}: token {token} at position {position} is outside the vocabulary of {vocabulary}: set model.vocab_size to \
             what the file was written with, at least {} (the tokens of GPT-2 take 50257)",
        path.display(), u32::from(*token) + 1)]
    Outside {
        /// The file.
        path: PathBuf,
        /// The token.
        token: u16,
        /// Its place, in tokens from the start.
        position: u64,
        /// The model's vocabulary.
        vocabulary: u32,
    },
}

impl TokenFile {
    /// Opens a file that must hold at least one sample of `needed` tokens.
    pub(crate) fn open(path: &Path, needed: u64) -> Result<TokenFile, TokenFileError> {
        let read = |source| TokenFileError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        let bytes = file.metadata().map_err(read)?.len();
        if !bytes.is_multiple_of(2) {
            return Err(TokenFileError::Odd { path: path.to_owned(), bytes });
        }
        let tokens = bytes / 2;
        if tokens < needed {
            return Err(TokenFileError::Short { path: path.to_owned(), tokens, needed });
        }
        Ok(TokenFile { path: path.to_owned(), file, tokens })
    }

    /// Sample `number` of `seed`: `length` tokens from a random place, each below `vocabulary`.
    pub(crate) fn sample(
        &self,
        seed: u64,
        number: u64,
        length: usize,
        vocabulary: u32,
    ) -> Result<Vec<u16>, TokenFileError> {
        let start = Random::new(seed, number).below(self.tokens - length as u64 + 1);
        let mut bytes = vec![0; 2 * length];
        let read = |source| TokenFileError::Read { path: self.path.clone(), source };
        self.file.read_exact_at(&mut bytes, 2 * start).map_err(read)?;
        let tokens: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        match tokens.iter().position(|token| u32::from(*token) >= vocabulary) {
            None => Ok(tokens),
            Some(at) => Err(TokenFileError::Outside {
                path: self.path.clone(),
                token: tokens[at],
                position: start + at as u64,
                vocabulary,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn counting(tokens: u16) -> tempfile::NamedTempFile {
        file(&(0..tokens).flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
    }

    #[test]
    fn samples_are_stretches_of_the_file_and_pure() {
        let file = counting(500);
        let tokens = TokenFile::open(file.path(), 17).unwrap();
        let mut starts = std::collections::BTreeSet::new();
        for number in 0..400 {
            let sample = tokens.sample(1, number, 17, 1000).unwrap();
            assert!(sample.windows(2).all(|pair| pair[1] == pair[0] + 1));
            assert_eq!(sample, tokens.sample(1, number, 17, 1000).unwrap());
            starts.insert(sample[0]);
        }
        assert!(starts.len() > 200 && *starts.last().unwrap() <= 483, "{starts:?}");
    }

    #[test]
    fn a_file_of_exactly_one_sample_works() {
        let file = counting(17);
        assert_eq!(TokenFile::open(file.path(), 17).unwrap().sample(1, 5, 17, 100).unwrap()[0], 0);
    }

    #[track_caller]
    fn check(result: Result<impl std::fmt::Debug, TokenFileError>, words: &str) {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn bad_files_are_named_with_what_is_wrong() {
        check(TokenFile::open(Path::new("/nowhere.bin"), 2), "/nowhere.bin: No such file");
        check(TokenFile::open(file(&[1, 2, 3]).path(), 1), "3 bytes are no whole number");
        check(TokenFile::open(counting(3).path(), 4), "3 tokens are fewer than a sample's 4");
        let file = counting(10);
        let tokens = TokenFile::open(file.path(), 10).unwrap();
        check(tokens.sample(1, 0, 10, 7), "token 7 at position 7 is outside the vocabulary of 7: set model.vocab_size");
        check(tokens.sample(1, 0, 10, 7), "at least 8 (");
    }
}
