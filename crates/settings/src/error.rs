//! What can be wrong with a run's settings.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::source::excerpt::excerpt;
use crate::source::origin::{Origin, Origins};

/// Settings that cannot be used; the text is one line that names the place, and [`SettingsError::hint`] is the mend.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file could not be opened or read.
    #[error("{}: {problem}", excerpt(&file.to_string_lossy()))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What the system answered, where it did.
        #[source]
        source: Option<io::Error>,
    },
    /// The file is not YAML, or uses a part of YAML that settings have no use for.
    #[error("{origin}: {problem}")]
    Syntax {
        /// The line.
        origin: Origin,
        /// What is wrong there.
        problem: String,
        /// The mend.
        mend: Option<String>,
    },
    /// An override that does not read `KEY=VALUE`, or that reaches inside a value.
    #[error("{origin}: {problem}")]
    Override {
        /// What was typed.
        origin: Origin,
        /// What is wrong with it.
        problem: String,
        /// The mend.
        mend: Option<String>,
    },
    /// A key that does not exist.
    #[error("{}unknown key `{}`", place(origin.as_ref()), excerpt(path))]
    UnknownKey {
        /// Where it was written.
        origin: Option<Origin>,
        /// The whole path of the key.
        path: String,
        /// Whole paths of the keys that were probably meant, likeliest first.
        near: Vec<String>,
        /// Every key that exists at that level.
        known: Vec<String>,
    },
    /// A key without which the run cannot start.
    #[error("{}`{}` is missing", place(origin.as_ref()), excerpt(path))]
    MissingKey {
        /// The group that lacks it, where a file has that.
        origin: Option<Origin>,
        /// The whole path of the key.
        path: String,
    },
    /// A value of the wrong kind, or one outside what is allowed.
    #[error("{}{}expected {expected}, got {got}", place(origin.as_ref()), key(path))]
    Value {
        /// Where it was written; absent for a default.
        origin: Option<Origin>,
        /// The whole path of its key.
        path: String,
        /// What is allowed.
        expected: String,
        /// What was written.
        got: String,
        /// The mend, where there is one to guess.
        mend: Option<String>,
    },
    /// A value that its own type refused in its own words.
    #[error("{}{}{problem}", place(origin.as_ref()), key(path))]
    Refused {
        /// Where it was written.
        origin: Option<Origin>,
        /// The whole path of its key.
        path: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl SettingsError {
    /// A value that a workload or the device refuses; `problem` says what is wrong and what would be right.
    pub fn refused(path: &str, problem: impl Into<String>, origins: &Origins) -> Self {
        Self::Refused { origin: origins.of(path).cloned(), path: path.to_owned(), problem: problem.into() }
    }

    /// What to do about it, to be printed after `hint:`.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { near, known, .. } => key_hint(near, known),
            Self::Syntax { mend, .. } | Self::Override { mend, .. } | Self::Value { mend, .. } => mend.clone(),
            Self::Unreadable { .. } | Self::MissingKey { .. } | Self::Refused { .. } => None,
        }
    }
}

/// The keys that were probably meant, or else all there are.
fn key_hint(near: &[String], known: &[String]) -> Option<String> {
    if !near.is_empty() {
        return Some(format!("did you mean {}?", quoted(near).join(" or ")));
    }
    match known {
        [] => Some("there are no keys at this level".to_owned()),
        known => Some(format!("the keys at this level are {}", quoted(known).join(", "))),
    }
}

fn quoted(keys: &[String]) -> Vec<String> {
    keys.iter().map(|key| format!("`{key}`")).collect()
}

/// The start of a message: where to look.
fn place(origin: Option<&Origin>) -> String {
    origin.map(|origin| format!("{origin}: ")).unwrap_or_default()
}

/// The part of a message that names the key; the settings as a whole have no name.
fn key(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{}: ", excerpt(path)) }
}
