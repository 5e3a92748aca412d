//! What a rung changes: settings on a command line or in the environment, with places for numbers.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use lowtide_config::command::{at_script, replace, split};
use lowtide_trainers::Preset;

use crate::{BatchSplit, KeepError};

/// Settings with places for `{micro}`, `{accum}` and `{checkpoint}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    settings: Vec<Setting>,
}

/// One setting; the text of a value still has its places.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Setting {
    /// `--key=value` or `key=value`.
    Joined { key: String, value: String },
    /// `--key value`.
    Spaced { key: String, value: String },
    /// A word by itself.
    Bare(String),
}

/// What stands in the places.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Values<'a> {
    pub(crate) batch: Option<BatchSplit>,
    pub(crate) checkpoint: Option<&'a OsStr>,
}

const PLACES: [&str; 3] = ["{micro}", "{accum}", "{checkpoint}"];

impl Template {
    /// What a rung changes for a trainer whose flags are known.
    pub(crate) fn of(preset: Preset) -> Self {
        let setting = |(key, place): (&str, &str)| Setting::Joined { key: format!("--{key}"), value: place.to_owned() };
        Self { settings: preset.keys().into_iter().zip(PLACES).map(setting).collect() }
    }

    /// Reads a template such as `--batch_size={micro} --gradient_accumulation_steps={accum}`.
    ///
    /// # Errors
    ///
    /// It is empty, has an open quote, or a place that is not known.
    pub fn read(text: &str) -> Result<Self, KeepError> {
        let wrong = |detail: String| KeepError::Template { template: text.to_owned(), detail };
        let words = split(text).map_err(|quote| wrong(format!("a quote ({quote}) is not closed")))?;
        if words.is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        if let Some(place) = words.iter().find_map(|word| unknown_place(word)) {
            return Err(wrong(format!("{place} is none of {}", PLACES.join(", "))));
        }
        let mut settings = Vec::new();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            settings.push(match word.split_once('=') {
                Some((key, value)) if !key.contains('{') => {
                    Setting::Joined { key: key.to_owned(), value: value.to_owned() }
                }
                _ => match words.next_if(|next| word.starts_with('-') && !next.starts_with('-')) {
                    Some(value) => Setting::Spaced { key: word, value },
                    None => Setting::Bare(word),
                },
            });
        }
        Ok(Self { settings })
    }

    /// Whether a place is named in it.
    #[must_use]
    pub fn has(&self, place: &str) -> bool {
        self.settings.iter().any(|setting| match setting {
            Setting::Joined { value, .. } | Setting::Spaced { value, .. } => value.contains(place),
            Setting::Bare(word) => word.contains(place),
        })
    }

    /// The name of the setting whose whole value is this place.
    pub(crate) fn key_of(&self, place: &str) -> Option<&str> {
        self.settings.iter().find_map(|setting| match setting {
            Setting::Joined { key, value } | Setting::Spaced { key, value } if value == place => Some(key.as_str()),
            _ => None,
        })
    }

    /// A command line with these settings: one that is there gets its new value in its place and its own way of
    /// writing, others follow at the end. Words before a script are its launcher's and stay.
    pub(crate) fn applied(&self, command: &[OsString], values: Values<'_>) -> Vec<OsString> {
        let (launcher, own) = at_script(command);
        let mut words = own.to_vec();
        for setting in &self.settings {
            match setting {
                Setting::Joined { key, value } => {
                    let value = filled(value, values);
                    if !replace(&mut words, key, &value) {
                        let mut word = OsString::from(format!("{key}="));
                        word.push(value);
                        words.push(word);
                    }
                }
                Setting::Spaced { key, value } => {
                    let value = filled(value, values);
                    if !replace(&mut words, key, &value) {
                        words.extend([key.into(), value]);
                    }
                }
                Setting::Bare(word) => {
                    let word = filled(word, values);
                    if !words.contains(&word) {
                        words.push(word);
                    }
                }
            }
        }
        [launcher, &words].concat()
    }

    /// The settings by name, for an environment or a file; words by themselves are left out.
    pub(crate) fn named(&self, values: Values<'_>) -> Vec<(String, OsString)> {
        let named = self.settings.iter().filter_map(|setting| match setting {
            Setting::Joined { key, value } | Setting::Spaced { key, value } => {
                Some((key.clone(), filled(value, values)))
            }
            Setting::Bare(_) => None,
        });
        named.collect()
    }

    /// The first name that an earlier setting has too.
    pub(crate) fn doubled(&self) -> Option<String> {
        let names: Vec<String> = self.named(Values::default()).into_iter().map(|(name, _)| name).collect();
        names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name.clone())
    }

    /// The first word that is no `NAME=value`.
    pub(crate) fn not_named(&self) -> Option<&str> {
        self.settings.iter().find_map(|setting| match setting {
            Setting::Joined { key, .. } => key.starts_with('-').then_some(key.as_str()),
            Setting::Spaced { key, .. } => Some(key),
            Setting::Bare(word) => Some(word),
        })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.settings.iter().flat_map(|setting| match setting {
            Setting::Joined { key, value } => vec![format!("{key}={value}")],
            Setting::Spaced { key, value } => vec![key.clone(), value.clone()],
            Setting::Bare(word) => vec![word.clone()],
        });
        out.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

fn filled(text: &str, values: Values<'_>) -> OsString {
    let mut text = text.to_owned();
    if let Some(batch) = values.batch {
        text = text.replace("{micro}", &batch.micro.to_string()).replace("{accum}", &batch.accum.to_string());
    }
    let Some(checkpoint) = values.checkpoint else { return text.into() };
    let mut bytes = Vec::new();
    for (index, part) in text.split("{checkpoint}").enumerate() {
        if index > 0 {
            bytes.extend_from_slice(checkpoint.as_bytes());
        }
        bytes.extend_from_slice(part.as_bytes());
    }
    OsString::from_vec(bytes)
}

/// A name in braces that is none of ours. Other braces, as of JSON, are left alone.
fn unknown_place(word: &str) -> Option<&str> {
    let mut rest = word;
    while let Some(start) = rest.find('{') {
        let length = rest[start + 1..].find(|character: char| !character.is_ascii_lowercase())?;
        let end = start + 1 + length;
        if length > 0 && rest[end..].starts_with('}') && !PLACES.contains(&&rest[start..=end]) {
            return Some(&rest[start..=end]);
        }
        rest = &rest[start + 1..];
    }
    None
}

#[cfg(test)]
mod tests {
    use lowtide_config::command::quoted;

    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        split(text).unwrap().into_iter().map(OsString::from).collect()
    }

    #[test]
    fn settings_keep_their_place_and_their_way_of_writing() {
        let flags = "--batch_size={micro} --gradient_accumulation_steps={accum}";
        let cases = [
            (flags, "python train.py", "python train.py --batch_size=4 --gradient_accumulation_steps=16"),
            (flags, "t --batch_size=64 -q", "t --batch_size=4 -q --gradient_accumulation_steps=16"),
            (flags, "t --batch-size 64 -q", "t --batch-size 4 -q --gradient_accumulation_steps=16"),
            (
                "--bs {micro} --quiet",
                "t --bs=64 --gradient_accumulation_steps 1",
                "t --bs=4 --gradient_accumulation_steps 1 --quiet",
            ),
            ("data.batch={micro} ++acc={accum}", "t data.batch=64", "t data.batch=4 ++acc=16"),
            ("data.batch={micro} ++acc={accum}", "t +data.batch=64 acc=1", "t +data.batch=4 acc=16"),
            // A value that looks like a name is no setting.
            ("bs={micro}", "t bs 64", "t bs 64 bs=4"),
            ("-b {micro}", "t --b=3 -b 64", "t --b=3 -b 4"),
            // What stands before the script is its launcher's.
            ("-n {micro}", "mpirun -n 4 python t.py -n 32", "mpirun -n 4 python t.py -n 4"),
            ("-n {micro}", "mpirun -n 4 python t.py", "mpirun -n 4 python t.py -n 4"),
            // An option that has no value leaves the next one alone.
            ("--amp={accum}", "t --amp --device cuda", "t --amp 16 --device cuda"),
            ("--amp={accum}", "t --bs 8 --amp", "t --bs 8 --amp 16"),
            ("--json='{\"n\": {micro}}'", "t", "t '--json={\"n\": 4}'"),
        ];
        for (template, command, expected) in cases {
            let values = Values { batch: BatchSplit::new(4, 16), checkpoint: None };
            let applied = Template::read(template).unwrap().applied(&words(command), values);
            assert_eq!(quoted(&applied), expected, "{template} on {command}");
        }
    }

    #[test]
    fn a_checkpoint_of_any_name() {
        let template = Template::read("--resume '{checkpoint}' --again").unwrap();
        let name = OsStr::from_bytes(b"out/a b\xff.pt");
        let values = Values { batch: None, checkpoint: Some(name) };
        let expected: Vec<OsString> = vec!["t".into(), "--resume".into(), name.into(), "--again".into()];
        assert_eq!(template.applied(&words("t --again --resume x"), values)[3], name);
        assert_eq!(template.applied(&words("t"), values), expected);
    }

    #[test]
    fn a_name_that_is_there_twice() {
        assert_eq!(Template::read("a={micro} a={accum}").unwrap().doubled().as_deref(), Some("a"));
        assert_eq!(Template::read("a={micro} b={accum}").unwrap().doubled(), None);
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        let told = |text| Template::read(text).unwrap_err().to_string();
        assert_eq!(told("--a={batch}"), "template `--a={batch}`: {batch} is none of {micro}, {accum}, {checkpoint}");
        assert_eq!(told(" "), "template ` `: it is empty");
        assert_eq!(told("'"), "template `'`: a quote (') is not closed");
    }
}
