//! Configurations as people have them, with the place of every setting.
//!
//! Only what is a plain value is read: a name, where its value stands in the text, and the value as it is written. What
//! a file computes is left alone. That is enough to know a batch size and to write another one in its place, with every
//! comment and blank as it was.
//!
//! So a patch is a splice, and order and everything nobody understood stay too. What is set in any other way (under a
//! condition, changed later, with others at once, in what is no Python) is listed as a gap with its reason.

use std::ops::Range;

use serde::Serialize;
use thiserror::Error;

use crate::{Gap, GapKind, command, json, python, yaml};

/// How a configuration is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Syntax {
    /// Python: assignments as in nanoGPT's configurations, arguments, defaults of options.
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
    /// Its settings, in the order of the text.
    pub settings: Vec<Setting>,
    /// What it sets in another way than by a plain value, in the order of the text.
    pub gaps: Vec<Gap>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The keys that lead to it, outermost first.
    pub path: Vec<String>,
    /// Where the value stands in the text, in bytes.
    pub span: Range<usize>,
    /// The value, without quotes.
    pub value: String,
    /// What it belongs to.
    pub scope: Scope,
    /// The name of the class, the function or the call that it belongs to, in Python.
    pub owner: Option<String>,
    /// For an argument of a call in Python, names that tell what the call is for: what its value is given to, the
    /// function it stands in, its first argument.
    pub around: Vec<String>,
}

/// What a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The file, or the script that a command line runs: it holds whenever that is read.
    File,
    /// A class, as a field with its default.
    Class,
    /// A call, as an argument.
    Call,
    /// A function, as the default of an argument.
    Parameter,
    /// An option of the command line, as its default.
    Option,
    /// A dictionary.
    Entry,
    /// Something else that has it as an attribute or an item: `args.steps = 4`; or a variable that a function sets for
    /// the whole file.
    Member,
    /// A function: a variable of its own, which is another one than the file's.
    Local,
    /// What launches the script of a command line.
    Launcher,
}

impl Setting {
    pub(crate) fn new(path: Vec<String>, span: Range<usize>, value: impl Into<String>) -> Self {
        Self { path, span, value: value.into(), scope: Scope::File, owner: None, around: Vec::new() }
    }

    /// What it is called: its last key, or the one before where that only says that a value follows.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let mut names = self.path.iter().rev().map(|name| &**name);
        names.find(|name| !matches!(*name, "value" | "enabled"))
    }
}

/// Why a configuration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
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
        let config = Self::parse_as(Syntax::of_name(name).unwrap_or_else(|| by_text(text)), name, text)?;
        match config.settings.is_empty() {
            true => Err(ConfigError::Empty { name: name.to_owned() }),
            false => Ok(config),
        }
    }

    /// Reads a configuration that is written in a known way; it may have no settings at all.
    ///
    /// # Errors
    ///
    /// Where the text is not written that way.
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
        let (mut settings, mut gaps) = match syntax {
            Syntax::Python => python::reader::settings(body).map_err(wrong("a Python configuration"))?,
            Syntax::Yaml => yaml::settings(body).map_err(wrong("YAML"))?,
            Syntax::Json => json::settings(body).map_err(wrong("JSON"))?,
            Syntax::Command => (command::options::settings(body), Vec::new()),
        };
        for setting in &mut settings {
            setting.span = setting.span.start + mark..setting.span.end + mark;
        }
        gaps.iter_mut().for_each(|gap| gap.at += mark);
        Ok(Self { name: name.to_owned(), text: text.to_owned(), syntax, settings, gaps })
    }

    /// A configuration that is not read: it may set any name, or any in a group.
    #[must_use]
    pub fn unread(name: &str, group: Option<&str>, reason: &str) -> Self {
        let path = group.map(|group| vec![group.to_owned()]).unwrap_or_default();
        let gaps = vec![Gap::new(path, 0, reason, GapKind::Unread, Scope::File)];
        Self { name: name.to_owned(), text: String::new(), syntax: Syntax::Yaml, settings: Vec::new(), gaps }
    }

    /// The setting of the file itself at a path, its keys joined by dots; of several the last one.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Setting> {
        let is_here = |setting: &&Setting| {
            setting.scope == Scope::File && setting.path.iter().map(|key| &**key).eq(path.split('.'))
        };
        self.settings.iter().rev().find(is_here)
    }

    /// The text with other values for some of its settings. Everything else stays as it is.
    #[must_use]
    pub fn with<'a>(&self, values: impl IntoIterator<Item = (&'a Setting, &'a str)>) -> String {
        let mut values: Vec<_> = values.into_iter().collect();
        // From the end, so that the places before it stay where they are.
        values.sort_by_key(|(setting, _)| std::cmp::Reverse(setting.span.start));
        let mut text = self.text.clone();
        for (setting, value) in values {
            text.replace_range(setting.span.clone(), value);
        }
        text
    }

    /// The line of a place in the text, from 1.
    #[must_use]
    pub fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// Whether a later setting of the same name takes the place of an earlier one: scripts assign again, and of the
    /// options of one command the last one counts.
    #[must_use]
    pub fn replaces(&self, later: &Setting, earlier: &Setting) -> bool {
        match self.syntax {
            Syntax::Python => match (earlier.scope, later.scope) {
                (Scope::File, Scope::File) => true,
                (Scope::Parameter, Scope::Call) => self.makes_the_only_one(later, earlier),
                _ => false,
            },
            Syntax::Command => {
                let between = self.text.get(earlier.span.end..later.span.start).unwrap_or("\n");
                let mut lines = between.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                lines.all(|line| line.trim_end().ends_with('\\'))
            }
            Syntax::Yaml | Syntax::Json => false,
        }
    }
}

impl Config {
    /// Whether an argument is of the only call of the class whose `__init__` has the parameter: then its default never counts.
    fn makes_the_only_one(&self, argument: &Setting, parameter: &Setting) -> bool {
        let before = &self.text[..parameter.span.start];
        let is_its_own = before.rfind("def ").is_some_and(|at| before[at..].starts_with("def __init__("));
        let class = before.rmatch_indices("class ").find(|(at, _)| *at == 0 || before[..*at].ends_with('\n'));
        let name = class.and_then(|(at, word)| before[at + word.len()..].split(['(', ':', ' ']).next());
        let Some(name) = name.filter(|name| is_its_own && argument.owner.as_deref() == Some(name)) else {
            return false;
        };
        let is_call = |(at, _): &(usize, &str)| {
            let before = &self.text[..*at];
            !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !before.ends_with("class ")
        };
        self.text.match_indices(&format!("{name}(")).filter(is_call).count() == 1
    }
}

impl Syntax {
    /// How a file is written, by the ending of its name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match &*name.rsplit_once('.')?.1.to_ascii_lowercase() {
            "py" => Some(Self::Python),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "sh" | "bash" | "sbatch" | "slurm" => Some(Self::Command),
            _ => None,
        }
    }
}

fn by_text(text: &str) -> Syntax {
    match text {
        _ if text.trim_start().starts_with('{') => Syntax::Json,
        _ if text.contains(" --") || text.trim_start().starts_with("--") => Syntax::Command,
        _ if text.lines().any(|line| line.contains(": ") || line.ends_with(':')) => Syntax::Yaml,
        _ => Syntax::Python,
    }
}

/// A value without the quotes around it.
#[must_use]
pub fn unquoted(text: &str) -> &str {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::whole_number;

    const PYTHON: &str = "# a comment\nbatch_size = 12 # samples\nbatch_sizes = 3\n\
                          gradient_accumulation_steps = 5 * 8\n\
                          if batch_size == 4:\n    batch_size = 9\nlr: float = 1e-3\nn: int = 1_000\n\
                          loader = DataLoader(data, batch_size=7)\n";
    const YAML: &str = "trainer:\n  # how often\n  accumulate_grad_batches: 1  # steps\n  inner:\n    batch_size: 7\n\
                        data:\n  other: {a: 1}\n  batch_size: 64\nbatch_size: 3\n";
    const JSON: &str = "{\n  \"a\": {\"batch_size\": [1, {\"x\": \"}\"}]},\n  \
                        \"data\": {\"batch_size\": 64, \"b\": null},\n\
                        \"batch_size\": 3\n}\n";

    fn parsed(syntax: Syntax, text: &str) -> Config {
        Config::parse_as(syntax, "it", text).unwrap()
    }

    #[test]
    fn settings_are_found_by_their_paths() {
        let cases = [
            (Syntax::Python, PYTHON, "batch_size", Some(12)),
            (Syntax::Python, PYTHON, "gradient_accumulation_steps", Some(40)),
            (Syntax::Python, PYTHON, "n", Some(1000)),
            (Syntax::Python, PYTHON, "lr", None),
            (Syntax::Python, PYTHON, "batch", None),
            (Syntax::Yaml, YAML, "data.batch_size", Some(64)),
            (Syntax::Yaml, YAML, "data.other.a", Some(1)),
            (Syntax::Yaml, YAML, "trainer.accumulate_grad_batches", Some(1)),
            (Syntax::Yaml, YAML, "trainer.inner.batch_size", Some(7)),
            (Syntax::Yaml, YAML, "trainer.batch_size", None),
            (Syntax::Yaml, YAML, "batch_size", Some(3)),
            (Syntax::Yaml, YAML, "data", None),
            (Syntax::Json, JSON, "data.batch_size", Some(64)),
            (Syntax::Json, JSON, "batch_size", Some(3)),
            (Syntax::Json, JSON, "a.batch_size", None),
            (Syntax::Json, JSON, "b", None),
        ];
        for (syntax, text, path, expected) in cases {
            let found = parsed(syntax, text).at(path).and_then(|setting| whole_number(&setting.value));
            assert_eq!(found, expected, "{syntax:?} {path}");
        }
    }

    #[test]
    fn only_values_change() {
        let changed = |syntax, text, values: &[(&str, &str)]| {
            let config = parsed(syntax, text);
            config.with(values.iter().map(|(path, value)| (config.at(path).unwrap(), *value)))
        };
        assert_eq!(
            changed(Syntax::Python, PYTHON, &[("batch_size", "6"), ("n", "2")]),
            PYTHON.replace("batch_size = 12 #", "batch_size = 6 #").replace("1_000", "2")
        );
        assert_eq!(
            changed(Syntax::Yaml, YAML, &[("data.batch_size", "8"), ("trainer.accumulate_grad_batches", "16")]),
            YAML.replace("batches: 1  #", "batches: 16  #").replace("64", "8")
        );
        assert_eq!(changed(Syntax::Json, JSON, &[("data.batch_size", "4")]), JSON.replace("64", "4"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[a-c:={}()\\[\\]\"',\\\\ \n0-9#.&*!ü-]{0,60}", path in "[a-c.]{0,5}") {
            for syntax in [Syntax::Python, Syntax::Yaml, Syntax::Json, Syntax::Command] {
                let Ok(config) = Config::parse_as(syntax, "it", &text) else { continue };
                for setting in &config.settings {
                    let length = text.len() - setting.span.len() + 1;
                    prop_assert_eq!(config.with([(setting, "1")]).len(), length);
                }
                let _ = config.at(&path);
            }
        }
    }
}
