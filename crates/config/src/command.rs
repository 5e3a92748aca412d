//! Command lines: `--key value`, `--key=value`, Lightning's `--trainer.key=value` and Hydra's `trainer.key=value`.

use std::ops::Range;

use crate::{Setting, unquoted};

/// Every option with a value, in order; a flag without one has the value `true` and no place.
pub(crate) fn settings(text: &str) -> Vec<Setting> {
    let words = words(text);
    let mut settings = Vec::new();
    for (index, span) in words.iter().enumerate() {
        let word = &text[span.clone()];
        let Some(option) = word.strip_prefix("--").filter(|option| !option.is_empty()) else {
            settings.extend(override_of(word, span.start));
            continue;
        };
        let (key, value) = match option.split_once('=') {
            Some((key, _)) => (key, Some(span.start + 2 + key.len() + 1..span.end)),
            None => {
                let next = words.get(index + 1).filter(|next| !is_option(&text[(*next).clone()]));
                (option, next.cloned())
            }
        };
        let path = key.split('.').map(|part| part.replace('-', "_")).collect();
        settings.push(match value {
            Some(span) => Setting::new(path, span.clone(), unquoted(&text[span])),
            None => Setting::new(path, span.end..span.end, "true"),
        });
    }
    settings
}

/// Hydra's `train.batch_size=64`, a word that belongs to no option; in capitals it is a variable of the shell's.
fn override_of(word: &str, start: usize) -> Option<Setting> {
    let (key, value) = word.split_once('=')?;
    let key = key.trim_start_matches('+');
    let is_name = key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    let at = start + word.len() - value.len();
    let path = key.split('.').map(|part| part.replace('-', "_")).collect();
    (is_name && !value.is_empty()).then(|| Setting::new(path, at..at + value.len(), unquoted(value)))
}

fn is_option(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// The words of a command, as a shell splits them; comments and continued lines are read over.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quote = None;
    let mut in_comment = false;
    for (at, character) in text.char_indices() {
        if in_comment {
            in_comment = character != '\n';
            continue;
        }
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => {
                quote = Some(character);
                start = start.or(Some(at));
            }
            (None, '#') if start.is_none() => in_comment = true,
            (None, character) if character.is_whitespace() => words.extend(start.take().map(|start| start..at)),
            (None, '\\') if start.is_none() && text[at + 1..].starts_with(['\n', '\r']) => {}
            (None, _) => start = start.or(Some(at)),
        }
    }
    words.extend(start.map(|start| start..text.len()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shown;

    #[test]
    fn options_with_their_places() {
        let text = "torchrun train.py --batch_size=64 \\\n  --lr 1e-4 --bf16 --seed -1 \\\n \
            --trainer.accumulate-grad-batches=2 # --no\n";
        let found = shown(&settings(text), text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(
            found,
            [
                ("batch_size", "64", "64"),
                ("lr", "1e-4", "1e-4"),
                ("bf16", "true", ""),
                ("seed", "-1", "-1"),
                ("trainer.accumulate_grad_batches", "2", "2")
            ]
        );
        let text = "python train.py train.batch_size=64 +x=y";
        let found = shown(&settings(text), text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(found, [("train.batch_size", "64", "64"), ("x", "y", "y")]);
    }
}
