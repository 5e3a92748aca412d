//! One start of a command, before it is made.

use std::ffi::OsString;
use std::path::PathBuf;

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
