//! Configurations as people have them, with the place of every setting.
//!
//! Only what is a plain value is read: a name, where its value stands in the text, and the value as it is written. What
//! a file computes is left alone. That is enough to know a batch size and to write another one in its place, with every
//! comment and blank as it was.

mod command;
mod json;
mod python;
mod yaml;

use std::ops::Range;

use serde::Serialize;
use thiserror::Error;

/// How a configuration is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Syntax {
    /// Assignments at the left edge, as nanoGPT's configurations are.
    Python,
    /// YAML.
    Yaml,
    /// JSON, among them Hugging Face's `config.json`.
    Json,
    /// A command line, or a script of them: `--key value` and `--key=value`.
    Command,
}

/// A configuration, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Its name, for people and for diffs.
    pub name: String,
    /// Its text.
    pub text: String,
    /// How it is written.
    pub syntax: Syntax,
    pub(crate) settings: Vec<Setting>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The keys that lead to it, outermost first.
    pub(crate) path: Vec<String>,
    /// Where the value stands in the text, in bytes.
    pub(crate) span: Range<usize>,
    /// The value, without quotes.
    pub(crate) value: String,
}

impl Setting {
    /// What it is called: its last key, or the one before where that only says that a value follows.
    pub(crate) fn name(&self) -> Option<&str> {
        let mut names = self.path.iter().rev().map(|name| &**name);
        names.find(|name| !matches!(*name, "value" | "enabled"))
    }
}

/// Why a configuration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// It is larger than any configuration.
    #[error("{name}: {length} bytes are too many for a configuration")]
    TooLarge {
        /// Name of the configuration.
        name: String,
        /// Its length in bytes.
        length: usize,
    },
    /// It is not written as its name says.
    #[error("{name}, line {line}: this is not {syntax}: {problem}")]
    Wrong {
        /// Name of the configuration.
        name: String,
        /// The line, from 1.
        line: usize,
        /// What it should be.
        syntax: &'static str,
        /// What is wrong there.
        problem: String,
    },
    /// Nothing in it is a setting.
    #[error("{name}: no settings found in it")]
    Empty {
        /// Name of the configuration.
        name: String,
    },
}

/// Far above any configuration people write by hand.
const LARGEST: usize = 16 << 20;

impl Config {
    /// Reads a configuration; its name's ending says how it is written, and where there is none, its text does.
    ///
    /// # Errors
    ///
    /// Where the text is not written that way, or has no settings at all.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::parse_as(syntax(name, text), name, text)
    }

    /// Reads a configuration that is written in a known way.
    ///
    /// # Errors
    ///
    /// Where the text is not written that way, or has no settings at all.
    pub fn parse_as(syntax: Syntax, name: &str, text: &str) -> Result<Self, ConfigError> {
        if text.len() > LARGEST {
            return Err(ConfigError::TooLarge { name: name.to_owned(), length: text.len() });
        }
        let wrong = |syntax: &'static str| {
            move |(line, problem): (usize, String)| ConfigError::Wrong { name: name.to_owned(), line, syntax, problem }
        };
        // Editors on Windows write a mark first, which is no part of the first name.
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mark = text.len() - body.len();
        let mut settings = match syntax {
            Syntax::Python => python::settings(body),
            Syntax::Yaml => yaml::settings(body).map_err(wrong("YAML"))?,
            Syntax::Json => json::settings(body).map_err(wrong("JSON"))?,
            Syntax::Command => command::settings(body),
        };
        for setting in &mut settings {
            setting.span = setting.span.start + mark..setting.span.end + mark;
        }
        if settings.is_empty() {
            return Err(ConfigError::Empty { name: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), text: text.to_owned(), syntax, settings })
    }
}

fn syntax(name: &str, text: &str) -> Syntax {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "py" => Syntax::Python,
        "yaml" | "yml" => Syntax::Yaml,
        "json" => Syntax::Json,
        "sh" | "bash" | "sbatch" | "slurm" => Syntax::Command,
        _ if text.trim_start().starts_with('{') => Syntax::Json,
        _ if text.contains(" --") || text.trim_start().starts_with("--") => Syntax::Command,
        _ if text.lines().any(|line| line.contains(": ") || line.ends_with(':')) => Syntax::Yaml,
        _ => Syntax::Python,
    }
}

/// A value without the quotes around it.
pub(crate) fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

#[cfg(test)]
pub(crate) fn shown(settings: &[Setting], text: &str) -> Vec<(String, String, String)> {
    settings
        .iter()
        .map(|setting| (setting.path.join("."), setting.value.clone(), text[setting.span.clone()].to_owned()))
        .collect()
}
