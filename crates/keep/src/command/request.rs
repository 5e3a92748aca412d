//! What is asked for of a command that is kept alive, and what each of its starts is.

use std::ffi::OsString;
use std::path::PathBuf;

use lowtide_trainers::Preset;

use crate::{EffectiveBatch, StandIn};

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct CommandRequest {
    /// The command, its program first.
    pub command: Vec<OsString>,
    /// The trainer whose flags a retry changes; looked for where it is not given.
    pub preset: Option<Preset>,
    /// What a retry changes on the command line.
    pub rung: Option<String>,
    /// What a retry changes in the environment.
    pub rung_environment: Option<String>,
    /// The configuration file, as the command line names it, that a retry changes, and how.
    pub rung_config: Option<(PathBuf, String)>,
    /// The micro-batch, where the command line does not say it.
    pub micro: Option<u64>,
    /// Accumulation, where the command line does not say it.
    pub accum: Option<u64>,
    /// What may become of the samples of a step.
    pub effective: EffectiveBatch,
    /// How a restart resumes from a checkpoint.
    pub resume: ResumeRequest,
}

/// How a restart resumes from a checkpoint, as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ResumeRequest {
    /// As the trainer does, where it is known.
    #[default]
    Found,
    /// Not at all.
    Off,
    /// In the user's own words.
    Own {
        /// What is put on the command line.
        template: String,
        /// Where checkpoints are.
        pattern: String,
    },
}

/// One start of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The command, its program first.
    pub command: Vec<OsString>,
    /// Variables besides those that are there.
    pub environment: Vec<(OsString, OsString)>,
    /// Copies of a configuration file, or of the script and the modules that it imports, to be written first; the script's own
    /// before others.
    pub copies: Vec<ConfigCopy>,
}

impl Launch {
    /// Whether the command runs changed files under their own names.
    #[must_use]
    pub fn runs_copies(&self) -> bool {
        self.copies.iter().any(|copy| copy.stand_in.is_some())
    }

    /// The words that this start has and the command as it was given has not, each option with its value.
    #[must_use]
    pub fn words_beyond(&self, command: &[OsString]) -> Vec<OsString> {
        let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
        let mut given = 0;
        let mut words: Vec<OsString> = Vec::new();
        for (at, word) in self.command.iter().enumerate() {
            if command.get(given) == Some(word) {
                given += 1;
                continue;
            }
            // Another value in the place of one, or a word more.
            if self.command.get(at + 1) != command.get(given) {
                given += 1;
            }
            // A value stands behind the name of its option.
            let before = at.checked_sub(1).map(|at| &self.command[at]).filter(|_| !is_option(word));
            words.extend(before.filter(|before| is_option(before) && Some(*before) != words.last()).cloned());
            words.push(word.clone());
        }
        words
    }
}

/// A copy of a configuration file, of the script or of a module, with other values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigCopy {
    /// Where it is written.
    pub path: PathBuf,
    /// What it is a copy of.
    pub original: PathBuf,
    /// Its text.
    pub text: String,
    /// What is different, as `key=value`.
    pub changes: Vec<String>,
    /// What makes the command take it, where it is a copy of code and the command line stays as it is.
    pub stand_in: Option<StandIn>,
}

#[cfg(test)]
mod tests {
    use lowtide_config::command::{quoted, split};

    use super::*;

    #[test]
    fn the_words_to_type() {
        let words = |text: &str| split(text).unwrap().into_iter().map(OsString::from).collect::<Vec<_>>();
        for (given, started, expected) in [
            ("t --bs 64 -q", "t --bs 4 -q --acc=16", "--bs 4 --acc=16"),
            ("t --bs=64", "t --bs=4 --acc 16", "--bs=4 --acc 16"),
            ("t --amp --device cuda", "t --amp 16 --device cuda", "--amp 16"),
            ("t --bs 8 --amp", "t --bs 8 --amp 16", "--amp 16"),
            ("python t.py", "python t.py --batch_size=6 --accum=10", "--batch_size=6 --accum=10"),
            ("t -n 8 x", "t -n 4 x", "-n 4"),
            ("t", "t", ""),
        ] {
            let launch = Launch { command: words(started), environment: Vec::new(), copies: Vec::new() };
            assert_eq!(quoted(&launch.words_beyond(&words(given))), expected, "{given}");
        }
    }
}
