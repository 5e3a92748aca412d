//! What is asked for of a command that is kept alive, and what each of its starts is.

use std::ffi::OsString;
use std::path::PathBuf;

use lowtide_trainers::Preset;

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct CommandRequest {
    /// The command, its program first.
    pub command: Vec<OsString>,
    /// The trainer whose flags a rung changes; looked for where it is not given.
    pub preset: Option<Preset>,
    /// What a rung changes on the command line.
    pub rung: Option<String>,
    /// What a rung changes in the environment.
    pub rung_environment: Option<String>,
    /// The configuration file, as the command line names it, that a rung changes, and how.
    pub rung_config: Option<(PathBuf, String)>,
    /// The micro-batch, where the command line does not say it.
    pub micro: Option<u64>,
    /// Accumulation, where the command line does not say it.
    pub accum: Option<u64>,
    /// What is put on the command line to go on from a checkpoint, and where checkpoints are.
    pub resume: Option<(String, String)>,
}

/// One start of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The command, its program first.
    pub command: Vec<OsString>,
    /// Variables besides those that are there.
    pub environment: Vec<(OsString, OsString)>,
    /// The copy of a configuration file to be written first.
    pub copy: Option<ConfigCopy>,
}

/// A copy of a configuration file with other values.
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
}
