//! The one answer that configurations give to the question for a text: a folder, a word.

use lowtide_config::{Config, Gap, GapKind, Scope, Setting, Syntax};

use crate::answer::place;
use crate::{Question, candidates};

/// What configurations say of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextAnswer {
    /// Nothing.
    Absent,
    /// One text, without quotes.
    Text(String),
    /// Something that is no plain text, or several; with the place in words.
    Unknown(String),
}

/// What configurations say of a text, by the name that a trainer has for it; a later one counts before an earlier one.
#[must_use]
pub fn text(configs: &[Config], name: &'static str) -> TextAnswer {
    let mut answers = configs.iter().rev().map(|config| text_in(config, name));
    answers.find(|answer| *answer != TextAnswer::Absent).unwrap_or(TextAnswer::Absent)
}

fn text_in(config: &Config, name: &'static str) -> TextAnswer {
    if let Some(unread) = config.gaps.iter().find(|gap| gap.kind == GapKind::Unread && is_about(gap, name)) {
        return TextAnswer::Unknown(format!("{name} may be set in {}, which {}", config.name, unread.text));
    }
    let meant: Vec<&Setting> = candidates(config, Question::Name(name))
        .map(|(_, setting)| setting)
        .filter(|setting| !is_passed_on(config, setting))
        .collect();
    let Some(last) = meant.last() else { return TextAnswer::Absent };
    let place = place(config, last.span.start);
    if meant.iter().any(|other| other.value != last.value && !config.replaces(last, other)) {
        return TextAnswer::Unknown(format!("{place}: {name} is set in several places"));
    }
    let is_later = |gap: &&Gap| gap.at > last.span.start && gap.scope != Scope::Local;
    let is_changed = |gap: &&Gap| gap.path.last().is_some_and(|key| key == name) && !is_after_files(config, gap);
    if let Some(gap) = config.gaps.iter().filter(is_later).find(is_changed) {
        return TextAnswer::Unknown(format!("{place}: {name} is changed again: `{}`", gap.text));
    }
    match is_plain(config, last) {
        true => TextAnswer::Text(last.value.clone()),
        false => TextAnswer::Unknown(format!("{place}: {name} is `{}`, which is no plain text", last.value)),
    }
}

/// Whether a file that is not read may have it.
fn is_about(gap: &Gap, name: &str) -> bool {
    gap.path.first().is_none_or(|group| name.split('.').next() == Some(group))
}

/// What stands behind the line where nanoGPT's scripts read their files and flags is computed from them.
fn is_after_files(config: &Config, gap: &Gap) -> bool {
    config.gaps.iter().any(|other| other.text.contains("configurator.py") && other.at < gap.at)
}

/// `output_dir=args.output_dir`: set elsewhere.
fn is_passed_on(config: &Config, setting: &Setting) -> bool {
    let is_none = matches!(&*setting.value, "None" | "null" | "~");
    let passes = || setting.value.rsplit('.').next() == setting.name() && !is_quoted(config, setting);
    is_none || config.syntax == Syntax::Python && passes()
}

/// In Python a text stands in quotes, and one with braces may be filled in.
fn is_plain(config: &Config, setting: &Setting) -> bool {
    match config.syntax {
        Syntax::Python => is_quoted(config, setting),
        Syntax::Command | Syntax::Yaml | Syntax::Json => !setting.value.contains('$'),
    }
}

fn is_quoted(config: &Config, setting: &Setting) -> bool {
    config.text[setting.span.clone()].starts_with(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: TextAnswer) {
        let read = |(name, text): &(&str, &str)| {
            let syntax = Syntax::of_name(name).unwrap_or(Syntax::Command);
            Config::parse_as(syntax, name, text).unwrap()
        };
        let configs: Vec<Config> = files.iter().map(read).collect();
        assert_eq!(text(&configs, "out_dir"), expected, "{files:?}");
    }

    #[test]
    fn a_text_has_one_answer() {
        let plain = |text: &str| TextAnswer::Text(text.to_owned());
        let script = "out_dir = 'out'\nexec(open('configurator.py').read())\n";
        check(&[("train.py", script)], plain("out"));
        check(&[("train.py", script), ("c.py", "out_dir = \"out-shakespeare\"\n")], plain("out-shakespeare"));
        check(&[("train.py", script), ("line", "python train.py --out_dir=o2")], plain("o2"));
        check(&[("train.py", script), ("c.py", "n_layer = 4\n"), ("line", "python train.py")], plain("out"));
        check(&[("t.py", "TrainingArguments(out_dir=args.out_dir)\n")], TextAnswer::Absent);
        check(&[("a.yaml", "out_dir: o3\n")], plain("o3"));
        check(&[], TextAnswer::Absent);
        let unknown = |text: &str| TextAnswer::Unknown(text.to_owned());
        check(
            &[("t.py", "out_dir = base + '/x'\n")],
            unknown("t.py, line 1: out_dir is `base + '/x'`, which is no plain text"),
        );
        check(
            &[("train.py", script), ("c.py", "out_dir = 'a'\nif big:\n    out_dir = 'b'\n")],
            unknown("c.py, line 1: out_dir is changed again: `out_dir = 'b'`"),
        );
        check(
            &[("a.yaml", "out_dir: ${base}/x\n")],
            unknown("a.yaml, line 1: out_dir is `${base}/x`, which is no plain text"),
        );
    }
}
