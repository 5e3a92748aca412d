//! Where a value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::excerpt::excerpt;

/// The most characters a key may have; longer than any that exists, shorter than what YAML can write on one line.
pub(crate) const LONGEST_KEY: usize = 200;

/// The place where a value was written, as a person would look for it. Small, and cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a settings file: `configs/a.yaml:7`.
    Line {
        /// The file.
        file: Arc<Path>,
        /// The line, counted from 1.
        line: u32,
    },
    /// An override: `--set train.steps=5`.
    Set {
        /// What was typed after `--set`.
        text: Arc<str>,
    },
    /// A flag of its own: `--limit 3.5GiB`.
    Flag {
        /// The name with its dashes, and the value.
        text: Arc<str>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(formatter, "{}:{line}", excerpt(&file.to_string_lossy())),
            Self::Set { text } => write!(formatter, "--set {}", excerpt(text)),
            Self::Flag { text } => formatter.write_str(&excerpt(text)),
        }
    }
}

/// The origin of every key that somebody wrote; a key that nobody wrote has its default and no origin.
///
/// Keys are paths: `train.steps`, `model.layers[2]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Where the key at `path` was written, or else the nearest group or list that holds it.
    pub fn of(&self, path: &str) -> Option<&Origin> {
        let mut path = path;
        loop {
            if let Some(origin) = self.0.get(path) {
                return Some(origin);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// Whether the key at exactly `path` was typed, and not read from a file.
    pub fn is_typed(&self, path: &str) -> bool {
        matches!(self.exactly(path), Some(Origin::Set { .. } | Origin::Flag { .. }))
    }

    /// Where the key at exactly `path` was written.
    pub(crate) fn exactly(&self, path: &str) -> Option<&Origin> {
        self.0.get(path)
    }

    /// Whether somebody wrote the key at exactly `path`, or something below it.
    pub fn is_set(&self, path: &str) -> bool {
        self.0.keys().any(|key| is_at_or_below(key, path))
    }

    /// Notes the origin of `path`; what was known about the keys below it no longer holds.
    pub(crate) fn replace(&mut self, path: &str, origin: Origin) {
        self.0.retain(|key, _| !is_at_or_below(key, path));
        self.0.insert(path.to_owned(), origin);
    }

    /// Notes the origin of a group at `path` unless it has one.
    pub(crate) fn add(&mut self, path: &str, origin: Origin) {
        self.0.entry(path.to_owned()).or_insert(origin);
    }
}

/// Whether `key` is `path`, or lies inside the group or list at `path`.
fn is_at_or_below(key: &str, path: &str) -> bool {
    key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Keys that had another name once, and the one they have now: files and commands with the old one are still read.
const RENAMED: [(&str, &str); 2] = [("memory.line", "memory.limit"), ("memory.host_line", "memory.host_limit")];

/// The name that a key has now.
pub(crate) fn current_key(path: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == path).map_or(path, |(_, new)| new)
}

/// The path of `key` inside the group at `path`; the whole settings have the empty path.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Origin {
        Origin::Set { text: text.into() }
    }

    #[test]
    fn falls_back_to_what_holds_the_key() {
        let mut origins = Origins::default();
        origins.add("model", set("a"));
        origins.add("model.layers", set("b"));
        assert_eq!(origins.of("model.layers[2].width"), Some(&set("b")));
        assert_eq!(origins.of("model.width"), Some(&set("a")));
        assert_eq!(origins.of("modelling"), None);
        assert_eq!(origins.of(""), None);
    }

    #[test]
    fn replacing_forgets_what_was_below() {
        let mut origins = Origins::default();
        origins.add("a.b[0]", set("1"));
        origins.add("a.bc", set("2"));
        origins.replace("a.b", set("3"));
        assert_eq!(origins.of("a.b[0]"), Some(&set("3")));
        assert_eq!(origins.of("a.bc"), Some(&set("2")));
        assert!(origins.is_set("a"));
        assert!(!origins.is_set("a.b.c"));
    }
}
