//! A figure that may not be there, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A figure, or the reason why there is none.
///
/// In JSON the figure stands alone (`"pss_bytes": 4096`), and a missing one is an object:
/// `"pss_bytes": {"missing": "denied", "detail": "..."}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// The figure.
    Known(T),
    /// Why there is none.
    Missing(Missing),
}

/// Why a figure is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The kind of reason, for programs.
    #[serde(rename = "missing")]
    pub cause: Cause,
    /// The reason with its place, for people.
    pub detail: String,
}

/// The kinds of reasons why a figure is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The file, library or card is not there.
    Absent,
    /// The system lets this user not see it.
    Denied,
    /// The process ended.
    Ended,
    /// What was read is not of the form it should have.
    Malformed,
    /// It is there and could not be read.
    Failed,
    /// Nobody asked for it.
    NotAsked,
}

impl<T> Reading<T> {
    /// The figure, if it is there.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Missing(_) => None,
        }
    }

    /// The reason, if the figure is not there.
    pub const fn missing(&self) -> Option<&Missing> {
        match self {
            Self::Known(_) => None,
            Self::Missing(missing) => Some(missing),
        }
    }
}

impl<T> From<Result<T, Missing>> for Reading<T> {
    fn from(result: Result<T, Missing>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(missing) => Self::Missing(missing),
        }
    }
}

impl Missing {
    pub(crate) fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into() }
    }

    pub(crate) fn malformed(place: &str, what: &str) -> Self {
        Self::new(Cause::Malformed, format!("/{place}: {what}"))
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.detail)
    }
}
