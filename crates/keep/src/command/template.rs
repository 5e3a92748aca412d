//! What a retry changes: settings on a command line or in the environment, with places for numbers.

use std::ffi::{OsStr, OsString};
use std::fmt;

use lowtide_config::command::{at_script, replace, split, value};
use lowtide_trainers::Preset;

use crate::{BatchSplit, KeepError};

/// Settings with places for `{micro}`, `{accum}` and `{checkpoint}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    words: Vec<TemplateWord>,
}

/// A word, or a name with its value; the text still has its places.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TemplateWord {
    name: String,
    /// Behind what stands between it and its name: `=` or a blank.
    value: Option<(char, String)>,
}

/// What stands in the places.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Values<'a> {
    pub(crate) batch: Option<BatchSplit>,
    pub(crate) checkpoint: Option<&'a OsStr>,
}

const CHECKPOINT: &str = "{checkpoint}";
const PLACES: [&str; 3] = ["{micro}", "{accum}", CHECKPOINT];

impl Template {
    /// What a retry changes for a trainer whose flags are known.
    pub(crate) fn of(preset: Preset) -> Self {
        let word = |(key, place): (&str, &str)| TemplateWord {
            name: format!("--{key}"),
            value: Some(('=', place.to_owned())),
        };
        Self { words: preset.keys().into_iter().zip(PLACES).map(word).collect() }
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
        let mut read = Vec::new();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            read.push(match word.split_once('=') {
                Some((name, value)) if !name.contains('{') => {
                    TemplateWord { name: name.to_owned(), value: Some(('=', value.to_owned())) }
                }
                _ => {
                    let value = words.next_if(|next| word.starts_with('-') && !next.starts_with('-'));
                    TemplateWord { name: word, value: value.map(|value| (' ', value)) }
                }
            });
        }
        Ok(Self { words: read })
    }

    /// Reads a template of `NAME=value` alone, with no name twice.
    pub(crate) fn read_named(text: &str) -> Result<Self, KeepError> {
        let template = Self::read(text)?;
        let words = &template.words;
        let is_named = |word: &TemplateWord| matches!(word.value, Some(('=', _))) && !word.name.starts_with('-');
        let unnamed = words.iter().find(|word| !is_named(word)).map(|word| format!("{} is no NAME=value", word.name));
        let is_double = |(at, word): &(usize, &TemplateWord)| words[..*at].iter().any(|it| it.name == word.name);
        let doubled =
            || words.iter().enumerate().find(is_double).map(|(_, word)| format!("{} is there twice", word.name));
        match unnamed.or_else(doubled) {
            Some(detail) => Err(KeepError::Template { template: text.to_owned(), detail }),
            None => Ok(template),
        }
    }

    /// Whether a place is named in it.
    pub(crate) fn has(&self, place: &str) -> bool {
        self.words.iter().any(|word| word.value.as_ref().map_or(&word.name, |(_, value)| value).contains(place))
    }

    /// Whether a command line has these settings already: those with a place for a checkpoint, with any value, or all of
    /// them where none has one.
    pub(crate) fn is_on(&self, command: &[OsString]) -> bool {
        let own = at_script(command).1;
        let is_place = |word: &&TemplateWord| word.value.as_ref().is_some_and(|(_, it)| it.contains(CHECKPOINT));
        let given =
            |word: &TemplateWord| value(own, &word.name).filter(|it| !["", "None", "null"].iter().any(|no| it == no));
        let is_same = |word: &TemplateWord| match &word.value {
            Some((_, value)) => given(word).is_some_and(|it| it == OsStr::new(value)),
            None => own.iter().any(|it| *it == *word.name),
        };
        let mut places = self.words.iter().filter(is_place).peekable();
        match places.peek() {
            Some(_) => places.all(|word| given(word).is_some()),
            None => self.words.iter().all(is_same),
        }
    }

    /// The same without what has a place in it; `None` where nothing is left.
    pub(crate) fn without(mut self, place: &str) -> Option<Self> {
        self.words.retain(|word| !word.value.as_ref().map_or(&word.name, |(_, value)| value).contains(place));
        (!self.words.is_empty()).then_some(self)
    }

    /// The name of the setting whose whole value is this place.
    pub(crate) fn key_of(&self, place: &str) -> Option<&str> {
        let is_it = |word: &&TemplateWord| word.value.as_ref().is_some_and(|(_, value)| value == place);
        self.words.iter().find(is_it).map(|word| &*word.name)
    }

    /// A command line with these settings: one that is there gets its new value in its place and its own way of
    /// writing, others follow at the end. Words before a script are its launcher's and stay.
    pub(crate) fn applied(&self, command: &[OsString], values: Values<'_>) -> Vec<OsString> {
        let (launcher, own) = at_script(command);
        let mut words = own.to_vec();
        for TemplateWord { name, value } in &self.words {
            let Some((sign, value)) = value else {
                let word = filled(name, values);
                if !words.contains(&word) {
                    words.push(word);
                }
                continue;
            };
            let value = filled(value, values);
            if replace(&mut words, name, &value) {
                continue;
            }
            match sign {
                '=' => words.push([OsStr::new(name), &value].join(OsStr::new("="))),
                _ => words.extend([name.into(), value]),
            }
        }
        [launcher, &words].concat()
    }

    /// The settings by name, for an environment or a file; words by themselves are left out.
    pub(crate) fn named(&self, values: Values<'_>) -> Vec<(String, OsString)> {
        let named = |word: &TemplateWord| Some((word.name.clone(), filled(&word.value.as_ref()?.1, values)));
        self.words.iter().filter_map(named).collect()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |TemplateWord { name, value }: &TemplateWord| match value {
            Some((sign, value)) => format!("{name}{sign}{value}"),
            None => name.clone(),
        };
        out.write_str(&self.words.iter().map(shown).collect::<Vec<_>>().join(" "))
    }
}

fn filled(text: &str, values: Values<'_>) -> OsString {
    let mut text = text.to_owned();
    if let Some(batch) = values.batch {
        text = text.replace("{micro}", &batch.micro.to_string()).replace("{accum}", &batch.accum.to_string());
    }
    let Some(checkpoint) = values.checkpoint else { return text.into() };
    text.split("{checkpoint}").map(OsStr::new).collect::<Vec<_>>().join(checkpoint)
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
    use std::os::unix::ffi::OsStrExt;

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
    fn settings_that_are_there_already() {
        let is_on = |template: &str, command: &str| Template::read(template).unwrap().is_on(&words(command));
        for (template, command) in [
            ("--resume {checkpoint}", "python t.py --bs 4 --resume out/last.pt"),
            ("--resume={checkpoint} --again", "python t.py --resume=a.pt"),
            ("--init_from=resume", "python t.py --init_from=resume"),
            ("--resume", "python t.py --resume"),
        ] {
            assert!(is_on(template, command), "{template} on {command}");
        }
        for (template, command) in [
            ("--resume {checkpoint}", "python t.py --resume-not out/last.pt"),
            ("--resume {checkpoint}", "python t.py --resume ''"),
            ("--resume {checkpoint}", "torchrun --resume a.pt t.py"),
            ("--init_from=resume", "python t.py --init_from=scratch"),
            ("--resume --again", "python t.py --resume"),
        ] {
            assert!(!is_on(template, command), "{template} on {command}");
        }
    }

    #[test]
    fn a_name_that_is_there_twice() {
        let twice = Template::read_named("a={micro} a={accum}").unwrap_err();
        assert_eq!(twice.to_string(), "template `a={micro} a={accum}`: a is there twice");
        assert!(Template::read_named("a={micro} b={accum}").is_ok());
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        let told = |text| Template::read(text).unwrap_err().to_string();
        assert_eq!(told("--a={batch}"), "template `--a={batch}`: {batch} is none of {micro}, {accum}, {checkpoint}");
        assert_eq!(told(" "), "template ` `: it is empty");
        assert_eq!(told("'"), "template `'`: a quote (') is not closed");
    }
}
