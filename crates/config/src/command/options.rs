//! The options of a command line: `--key value`, `--key=value`, `-n 4`, Lightning's `--trainer.key=value` and Hydra's
//! `trainer.key=value`.
//!
//! A text and the words of a process go through the same reading.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::script::at_script;
use super::variables::resolve;
use super::words::{Word, words};
use crate::{Scope, Setting};

/// Every option with a value, in order; a flag without one has the value `true` and no place.
pub(crate) fn settings(text: &str) -> Vec<Setting> {
    let words = words(text);
    let mut settings = Vec::new();
    for command in words.chunk_by(|one, other| one.command == other.command) {
        let script = at_script(command).0.len().saturating_sub(1);
        for flag in flags(command) {
            let word = &command[flag.word];
            let Some(path) = path(&word.text[..flag.name]) else { continue };
            let (span, value) = match flag.slot {
                Slot::Within(at) => (value_span(text, word), &word.text[at..]),
                Slot::Next => (command[flag.word + 1].span.clone(), &*command[flag.word + 1].text),
                Slot::Nowhere => (word.span.end..word.span.end, "true"),
            };
            let scope = if flag.word < script { Scope::Launcher } else { Scope::File };
            settings.push(Setting { scope, ..Setting::new(path, span, value) });
        }
    }
    resolve(text, &mut settings);
    settings
}

/// The keys in the name of an option, or of Hydra's override; in capitals that is a variable of the shell's. A short
/// option keeps its dash, by which it is told from others.
fn path(name: &str) -> Option<Vec<String>> {
    if let [b'-', letter] = name.as_bytes() {
        return letter.is_ascii_alphabetic().then(|| vec![name.to_owned()]);
    }
    let key = match name.strip_prefix("--") {
        Some(key) => key,
        None => Some(name.trim_start_matches('+')).filter(|key| key.starts_with(|c: char| c.is_ascii_lowercase()))?,
    };
    let is_name = key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    (is_name && !key.is_empty()).then(|| key.split('.').map(|part| part.replace('-', "_")).collect())
}

/// Where the value stands in a word that has its name too, with the quotes around the value alone.
fn value_span(text: &str, word: &Word) -> Range<usize> {
    let raw = &text[word.span.clone()];
    let start = word.span.start + raw.find('=').map_or(0, |at| at + 1);
    let is_quoted_whole = raw.starts_with(['"', '\'']) && raw.ends_with(['"', '\'']);
    start..(word.span.end - usize::from(is_quoted_whole)).max(start)
}

/// An option, or a word such as `key=value`.
struct Flag {
    /// The word that names it.
    word: usize,
    /// How long its name is.
    name: usize,
    slot: Slot,
}

/// Where the value of an option stands.
enum Slot {
    /// In the word of its name, so many bytes behind its beginning.
    Within(usize),
    /// The next word.
    Next,
    Nowhere,
}

fn flags<W: AsRef<OsStr>>(words: &[W]) -> impl Iterator<Item = Flag> + '_ {
    words.iter().enumerate().filter_map(|(word, text)| {
        let bytes = text.as_ref().as_bytes();
        if let Some(name) = bytes.iter().position(|byte| *byte == b'=') {
            return Some(Flag { word, name, slot: Slot::Within(name + 1) });
        }
        // `-n4`
        if let [b'-', letter, digits @ ..] = bytes
            && letter.is_ascii_alphabetic()
            && !digits.is_empty()
            && digits.iter().all(u8::is_ascii_digit)
        {
            return Some(Flag { word, name: 2, slot: Slot::Within(2) });
        }
        let has_value = words.get(word + 1).is_some_and(|next| !is_option(next.as_ref()));
        let slot = if has_value { Slot::Next } else { Slot::Nowhere };
        is_option(text.as_ref()).then_some(Flag { word, name: bytes.len(), slot })
    })
}

fn flags_of(command: &[OsString], key: &str) -> impl Iterator<Item = Flag> {
    flags(command).filter(move |flag| is_same(&command[flag.word].as_bytes()[..flag.name], key))
}

/// Whether a word is an option, and no value of the one before it; `-1` and `-.5` are values.
fn is_option(word: &OsStr) -> bool {
    matches!(word.as_bytes(), [b'-', first, ..] if !first.is_ascii_digit() && *first != b'.')
}

/// The value that a command line has for an option, `--key`, `-k` or `key`; of several the last, as most programs take
/// it.
#[must_use]
pub fn value<'a>(command: &'a [OsString], key: &str) -> Option<&'a OsStr> {
    values(command, key).last().copied()
}

/// Every value that a command line has for an option, in order.
#[must_use]
pub fn values<'a>(command: &'a [OsString], key: &str) -> Vec<&'a OsStr> {
    let value = |flag: Flag| match flag.slot {
        Slot::Within(at) => Some(OsStr::from_bytes(&command[flag.word].as_bytes()[at..])),
        Slot::Next => Some(command[flag.word + 1].as_os_str()),
        Slot::Nowhere => None,
    };
    flags_of(command, key).filter_map(value).collect()
}

/// Puts another value in the place of an option's, wherever the command line has it; whether it has it at all.
pub fn replace(command: &mut Vec<OsString>, key: &str, value: &OsStr) -> bool {
    let found: Vec<Flag> = flags_of(command, key).collect();
    // From the end, so that the words before it stay where they are.
    for flag in found.iter().rev() {
        match flag.slot {
            Slot::Within(at) => {
                let mut word = command[flag.word].as_bytes()[..at].to_vec();
                word.extend_from_slice(value.as_bytes());
                command[flag.word] = OsString::from_vec(word);
            }
            Slot::Next => command[flag.word + 1] = value.to_owned(),
            Slot::Nowhere => command.insert(flag.word + 1, value.to_owned()),
        }
    }
    !found.is_empty()
}

/// Whether two names are the same option: many programs take `-` for `_` within a name, and Hydra's `+name` adds what
/// `name` is.
fn is_same(name: &[u8], key: &str) -> bool {
    let without_plus = |name: &'_ [u8]| name.iter().take_while(|byte| **byte == b'+').count();
    let (name, key) = (&name[without_plus(name)..], &key.as_bytes()[without_plus(key.as_bytes())..]);
    let alike = |(one, other): (&u8, &u8)| one == other || (matches!(one, b'-' | b'_') && matches!(other, b'-' | b'_'));
    let dashes = |bytes: &[u8]| bytes.iter().take_while(|byte| **byte == b'-').count();
    name.len() == key.len() && dashes(name) == dashes(key) && name.iter().zip(key).all(alike)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{quoted, split};
    use crate::config::shown;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str, &str)]) {
        let found = shown(&settings(text), text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn options_with_their_places() {
        check(
            "torchrun train.py --batch_size=64 \\\n  --lr 1e-4 --bf16 --seed -1 \\\n \
            --trainer.accumulate-grad-batches=2 # --no\n",
            &[
                ("batch_size", "64", "64"),
                ("lr", "1e-4", "1e-4"),
                ("bf16", "true", ""),
                ("seed", "-1", "-1"),
                ("trainer.accumulate_grad_batches", "2", "2"),
            ],
        );
        check("python train.py train.batch_size=64 +x=y", &[("train.batch_size", "64", "64"), ("x", "y", "y")]);
        check(
            "t --a='b c' \"--n=4\" --m \"5\" A=1 -b 6\n",
            &[("a", "b c", "'b c'"), ("n", "4", "4"), ("m", "5", "\"5\""), ("-b", "6", "6")],
        );
        check("t \"--a=", &[("a", "", "")]);
        // What the next command begins with is no value of an option before it.
        check("t --a\nb --c && d --e 1\n", &[("a", "true", ""), ("c", "true", ""), ("e", "1", "1")]);
    }

    #[test]
    fn what_stands_before_the_script_is_its_launchers() {
        let scopes = |text: &str| settings(text).iter().map(|setting| setting.scope).collect::<Vec<_>>();
        assert_eq!(scopes("accelerate launch --n 4 x.py --n 2\n"), [Scope::Launcher, Scope::File]);
        assert_eq!(scopes("n=4 t --n 2\ny --n 3 x.py\n"), [Scope::File, Scope::File, Scope::Launcher]);
    }

    fn command(text: &str) -> Vec<OsString> {
        split(text).unwrap().into_iter().map(OsString::from).collect()
    }

    #[test]
    fn the_value_that_counts_is_the_last() {
        let words = command("t --bs=1 --b-s 2 bs=3 -n4");
        assert_eq!(value(&words, "--b_s"), Some(OsStr::new("2")));
        assert_eq!(value(&words, "bs"), Some(OsStr::new("3")));
        assert_eq!(value(&words, "-n"), Some(OsStr::new("4")));
        assert_eq!(value(&words, "--none"), None);
        assert_eq!(value(&command("t --bs=1 --bs=8"), "--bs"), Some(OsStr::new("8")));
    }

    #[test]
    fn a_value_is_replaced_in_its_own_way_of_writing() {
        for (before, key, expected) in [
            ("t --bs=64 -q", "--bs", "t --bs=4 -q"),
            ("t --b-s 64 --b_s", "--b_s", "t --b-s 4 --b_s 4"),
            ("t -b64 b=1 +b=2", "b", "t -b64 b=4 +b=4"),
            ("t -b64", "-b", "t -b4"),
        ] {
            let mut words = command(before);
            assert!(replace(&mut words, key, OsStr::new("4")));
            assert_eq!(quoted(&words), expected);
            assert!(!replace(&mut words, "--none", OsStr::new("4")));
        }
    }
}
