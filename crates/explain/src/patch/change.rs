//! A change of one configuration, and how it is applied.

use std::ops::Range;

use lowtide_config::{Config, Syntax};
use serde::Serialize;
use thiserror::Error;

use super::diff::{diff, spliced};

/// A change of one configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Patch {
    /// Name of the configuration.
    pub file: String,
    /// How it is written.
    pub syntax: Syntax,
    /// The change as a unified diff.
    pub diff: String,
    /// The single changes, first to last.
    pub edits: Vec<Edit>,
    #[serde(skip)]
    pub(crate) original: String,
}

/// One place where text is replaced; what is only added replaces nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Edit {
    /// The setting, as its keys joined by dots.
    pub key: String,
    /// Where the old text begins and ends, in bytes.
    pub span: Range<usize>,
    /// What stands there.
    pub old: String,
    /// What stands there afterwards.
    pub new: String,
    /// The value afterwards.
    pub value: String,
}

/// Why a patch cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The text is not the one the patch was made for.
    #[error("the configuration has changed since it was read, so the patch does not apply")]
    Changed,
}

impl Patch {
    /// A change of some values of a configuration; `None` where nothing would change.
    pub(crate) fn new(config: &Config, mut edits: Vec<Edit>) -> Option<Self> {
        edits.retain(|edit| edit.old != edit.new);
        edits.sort_by_key(|edit| edit.span.start);
        let overlaps = edits.windows(2).any(|pair| pair[0].span.end > pair[1].span.start);
        if edits.is_empty() || overlaps {
            return None;
        }
        let diff = diff(&config.name, &config.text, &edits);
        let (file, original) = (config.name.clone(), config.text.clone());
        Some(Self { file, syntax: config.syntax, diff, edits, original })
    }

    /// The text after the change.
    ///
    /// # Errors
    ///
    /// Where `text` is not what the patch was made for, to the byte.
    pub fn apply(&self, text: &str) -> Result<String, PatchError> {
        if text != self.original {
            return Err(PatchError::Changed);
        }
        Ok(self.patched())
    }

    /// The whole text with the change in it.
    #[must_use]
    pub fn patched(&self) -> String {
        spliced(&self.original, 0..self.original.len(), &self.edits)
    }
}
