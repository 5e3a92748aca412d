//! The one answer that configurations give to the question for a number.
//!
//! A number is absent, known with its place, or unknown with the reason (`trainers/answer/`). The last place that sets
//! it counts, by the rules of the language: a variable of a function is another one, unless it is global; what a
//! condition sets leaves it open; where two calls disagree nobody decides. What a setting is about follows from its
//! whole path (`val.batch_size` is no batch of training, DeepSpeed's `train_batch_size` is one update's). Neither a
//! patch nor a rung rests on a number that is unknown: an older one would make "the same effective batch" a lie. A test
//! makes up scripts, files and command lines and compares what `explain` and `keep` make of them
//! (`trainers/tests/it/agreement.rs`).

use lowtide_config::{Config, Gap, GapKind, Scope, Setting, Syntax, whole_number};

use crate::deepspeed::{AUTO, whole_batch};
use crate::key::{BY_WORDS, is_for_evaluation};
use crate::{Key, key_of, key_of_option, key_of_path};

/// What configurations say of a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<'a> {
    /// Nothing.
    Absent,
    /// One number, in one place.
    Number {
        /// The number.
        number: u64,
        /// The configuration it stands in.
        config: &'a Config,
        /// The setting it is the value of.
        setting: &'a Setting,
    },
    /// Something that is no plain number, or several; with the place in words.
    Unknown(String),
}

impl Answer<'_> {
    /// The number, where there is one.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::Number { number, .. } => Some(*number),
            Self::Absent | Self::Unknown(_) => None,
        }
    }
}

/// Which number is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// By what it is about, whatever it is called.
    Key(Key),
    /// By the one name that a trainer has for it, with dots in the path of a nested key.
    Name(&'static str),
}

impl Question {
    /// How well the keys that lead to a setting answer it, 0 best; `None` where they do not.
    pub(crate) fn rank(self, syntax: Syntax, path: &[String]) -> Option<usize> {
        match self {
            Self::Key(key) => {
                let by_path = key_of_path(path).filter(|(known, _)| *known == key).map(|(_, rank)| rank);
                by_path.or_else(|| is_option_of(key, syntax, path).then_some(3 * BY_WORDS + 3))
            }
            // The trainer's settings have defaults in scripts; those of the data's class are not looked for.
            Self::Name(name) if syntax == Syntax::Python => {
                path.last().is_some_and(|last| last == name.trim_start_matches("trainer.")).then_some(0)
            }
            Self::Name(name) => {
                let path = path.join(".");
                // Where the file stands before the command `fit`, it has a level for each command.
                let path = path.strip_prefix("fit.").unwrap_or(&path);
                match path == name {
                    true => Some(0),
                    false => (Some(path) == deeper(name).as_deref()).then_some(1),
                }
            }
        }
    }

    /// Whether it is about something in a group that is not read.
    fn is_in(self, group: &[String]) -> bool {
        match (self, group) {
            (_, []) => true,
            (Self::Name(name), [group]) => name.split('.').next() == Some(group),
            _ => false,
        }
    }

    /// What it is called where no setting names it.
    const fn name(self) -> &'static str {
        match self {
            Self::Name(name) => name,
            Self::Key(Key::Batch) => "batch_size",
            Self::Key(Key::Accumulation) => "gradient_accumulation_steps",
            Self::Key(_) => "it",
        }
    }
}

/// Whether a command's flag has a name that a setting would not have for it: `--accum 4`.
fn is_option_of(key: Key, syntax: Syntax, path: &[String]) -> bool {
    let [name] = path else { return false };
    syntax == Syntax::Command && key == Key::Accumulation && key_of_option(name) == Some(key)
}

const BATCH: Question = Question::Key(Key::Batch);

/// A key as Lightning has it where the class is named in a file: one level deeper.
fn deeper(key: &str) -> Option<String> {
    key.rsplit_once('.').map(|(path, name)| format!("{path}.init_args.{name}"))
}

/// What configurations say of a number; a later one counts before an earlier one.
#[must_use]
pub fn answer(configs: &[Config], question: Question) -> Answer<'_> {
    let certain = configs.iter().rev().map(|config| answer_in(config, question)).find(|it| *it != Answer::Absent);
    // What is filled in elsewhere, and a variable of the same name in a function, leave it open what is meant.
    let open = || {
        configs.iter().find_map(|config| {
            let is_it = |path: &[String]| question.rank(config.syntax, path).is_some();
            let auto = config.settings.iter().find(|setting| is_auto(setting) && is_it(&setting.path));
            let local = || config.gaps.iter().find(|gap| gap.scope == Scope::Local && is_it(&gap.path));
            auto.map(|setting| not_a_number(config, setting))
                .or_else(|| local().map(|gap| unknown(config, gap, question)))
        })
    };
    certain.or_else(open).unwrap_or(Answer::Absent)
}

fn is_auto(setting: &Setting) -> bool {
    setting.value == AUTO
}

/// The settings of a configuration that answer a question, each with how well it does, 0 best.
pub fn candidates(config: &Config, question: Question) -> impl Iterator<Item = (usize, &Setting)> {
    let (end, whole) = (end(config), whole_batch(config));
    config.settings.iter().filter(move |setting| setting.span.start < end).filter_map(move |setting| {
        let is_left_open = is_auto(setting) && config.syntax != Syntax::Command;
        let rank = question.rank(config.syntax, &setting.path)?;
        let rank = if setting.scope == Scope::Class { rank + 2 } else { rank };
        let is_other = setting.scope == Scope::Launcher || is_for_evaluation(setting) && question == BATCH;
        (!is_other && !is_left_open && whole != Some(setting)).then_some((rank, setting))
    })
}

/// Where nanoGPT's scripts read their files and flags: what is set behind it is computed from them.
fn end(config: &Config) -> usize {
    let is_configurator = |gap: &&Gap| gap.kind == GapKind::Anything && gap.text.contains("configurator.py");
    config.gaps.iter().rfind(is_configurator).map_or(usize::MAX, |gap| gap.at)
}

fn answer_in(config: &Config, question: Question) -> Answer<'_> {
    let mut rest: Vec<(usize, &Setting)> = candidates(config, question).collect();
    let mut passed = None;
    while let Some((rank, best)) = rest.iter().min_by_key(|(rank, _)| *rank).copied() {
        let is_same = |setting: &Setting| match config.syntax {
            Syntax::Python => setting.name() == best.name(),
            _ => setting.path == best.path,
        };
        let (same, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, setting)| is_same(setting));
        let (own, meant): (Vec<&Setting>, Vec<&Setting>) =
            same.iter().map(|(_, setting)| *setting).partition(|setting| is_own_name(setting));
        let key = |name| key_of(name).map(|(key, _)| Question::Key(key));
        let passes_on = meant.iter().all(|setting| {
            setting.value == meant[0].value && last_name(&setting.value).and_then(key) == Some(question)
        });
        if meant.is_empty() || passes_on && !others.is_empty() {
            passed = passed.or(same.first().map(|(_, setting)| *setting));
            rest = others;
            continue;
        }
        let answer = one_of(config, &meant);
        let Answer::Number { setting, .. } = answer else { return answer };
        // Assigned again, to what something else has under this name.
        let again = own.iter().find(|own| config.replaces(own, setting) && own.span.start > setting.span.start);
        let gap = || gaps(config, question).find(|(other, gap)| *other <= rank && hides(gap, setting));
        return match again {
            Some(again) => not_a_number(config, again),
            None => gap().map_or(answer, |(_, gap)| unknown(config, gap, question)),
        };
    }
    let gap = gaps(config, question).next().map(|(_, gap)| unknown(config, gap, question));
    gap.or_else(|| passed.map(|setting| not_a_number(config, setting)))
        .or_else(|| several(config, question))
        .unwrap_or(Answer::Absent)
}

/// What may be meant without a plain value, each with how well it answers the question.
fn gaps(config: &Config, question: Question) -> impl Iterator<Item = (usize, &Gap)> {
    let end = end(config);
    config.gaps.iter().filter(move |gap| gap.at < end && gap.scope != Scope::Local).filter_map(move |gap| {
        let rank = match gap.kind {
            GapKind::Anything | GapKind::Unread => question.is_in(&gap.path).then_some(0),
            GapKind::Computed | GapKind::Changed | GapKind::Alias => question.rank(config.syntax, &gap.path),
        };
        Some((rank?, gap))
    })
}

/// Whether a gap leaves it open what a name is set to, although a setting has a value for it.
fn hides(gap: &Gap, setting: &Setting) -> bool {
    match (gap.scope, gap.kind) {
        // Of what a file runs through, the last counts.
        (Scope::File, _) if setting.scope == Scope::File => gap.at > setting.span.start,
        (_, GapKind::Alias | GapKind::Anything) => false,
        _ => true,
    }
}

/// One value of settings with the same name.
fn one_of<'a>(config: &'a Config, meant: &[&'a Setting]) -> Answer<'a> {
    let Some(last) = meant.last() else { return Answer::Absent };
    let other = meant.iter().find(|setting| setting.value != last.value && !config.replaces(last, setting));
    if let Some(other) = other {
        return Answer::Unknown(format!(
            "{}: {} is `{}` in line {} and `{}` in line {}",
            config.name,
            last.path.join("."),
            other.value,
            config.line_of(other.span.start),
            last.value,
            config.line_of(last.span.start)
        ));
    }
    match number_of(config, last) {
        Some(number) => Answer::Number { number, config, setting: last },
        None => not_a_number(config, last),
    }
}

/// The number that a setting has: in quotes it is none, except for a shell.
fn number_of(config: &Config, setting: &Setting) -> Option<u64> {
    let is_text = config.syntax != Syntax::Command && config.text[setting.span.clone()].starts_with(['"', '\'']);
    if is_text { None } else { whole_number(&setting.value) }
}

/// A group of values under a name that should have one.
fn several<'a>(config: &Config, question: Question) -> Option<Answer<'a>> {
    config.settings.iter().find_map(|setting| {
        let answers = |depth: &usize| question.rank(config.syntax, &setting.path[..*depth]).is_some();
        let depth = (1..setting.path.len()).find(answers)?;
        let (place, name) = (place(config, setting.span.start), setting.path[..depth].join("."));
        Some(Answer::Unknown(format!("{place}: {name} is a group of values, no plain number")))
    })
}

fn unknown<'a>(config: &Config, gap: &Gap, question: Question) -> Answer<'a> {
    let (place, name, text) = (place(config, gap.at), gap.path.join("."), &gap.text);
    Answer::Unknown(match gap.kind {
        GapKind::Unread => format!("{} may be set in {}, which {text}", question.name(), config.name),
        GapKind::Anything => format!("{place}: {} may be set by `{text}`", question.name()),
        _ if text.is_empty() => format!("{place}: {name} has no value"),
        GapKind::Changed => format!("{place}: {name} is changed: `{text}`"),
        GapKind::Alias => format!("{place}: {name} stands for another value: `{text}`"),
        GapKind::Computed => format!("{place}: {name} is set in a way that is not read here: `{text}`"),
    })
}

fn not_a_number<'a>(config: &Config, setting: &Setting) -> Answer<'a> {
    let (place, name) = (place(config, setting.span.start), setting.path.join("."));
    Answer::Unknown(format!("{place}: {name} is `{}`, no plain whole number", setting.value))
}

/// A configuration with the line of a place; what was typed has one line.
pub(crate) fn place(config: &Config, at: usize) -> String {
    match config.syntax == Syntax::Command && !config.text.contains('\n') {
        true => config.name.clone(),
        false => format!("{}, line {}", config.name, config.line_of(at)),
    }
}

/// `batch_size=args.batch_size`: passed on, set elsewhere.
fn is_own_name(setting: &Setting) -> bool {
    last_name(&setting.value).is_some_and(|name| setting.name() == Some(name))
}

/// The last part of a dotted name or of an item, where a value is nothing else: `args.steps`, `config["steps"]`.
fn last_name(value: &str) -> Option<&str> {
    let is_start = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_name =
        |text: &str| is_start(text) && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    let item = ['"', '\''].into_iter().find_map(|quote| {
        let (before, name) = value.strip_suffix(']')?.strip_suffix(quote)?.rsplit_once(quote)?;
        let of = before.strip_suffix('[')?;
        let is_plain = of.chars().all(|c| c.is_ascii_alphanumeric() || "_.[]'\"".contains(c));
        (is_start(of) && is_plain && is_name(name)).then_some(name)
    });
    item.or_else(|| is_name(value).then(|| value.rsplit('.').next()).flatten())
}
