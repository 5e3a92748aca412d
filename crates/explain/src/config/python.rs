//! Assignments at the left edge of a Python file, `batch_size = 64  # a comment`, and arguments on lines of their own.

use super::{Setting, unquoted};

/// Every assignment of a literal, or of a product of whole numbers, to a plain name.
pub(crate) fn settings(text: &str) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut start = 0;
    let mut in_string = false;
    for line in text.split_inclusive('\n') {
        let was_in_string = in_string;
        if line.matches("\"\"\"").count() % 2 == 1 || line.matches("'''").count() % 2 == 1 {
            in_string = !in_string;
        }
        if !was_in_string && let Some(setting) = assignment(line, start).or_else(|| argument(line, start)) {
            settings.push(setting);
        }
        start += line.len();
    }
    settings
}

fn assignment(line: &str, start: usize) -> Option<Setting> {
    let (name, rest) = line.split_once('=')?;
    // `name: int = 3` is an assignment too.
    let key = name.split(':').next().unwrap_or_default().trim_end();
    let is_name = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || rest.starts_with('=') {
        return None;
    }
    let value = without_comment(rest);
    let blank = value.len() - value.trim_start().len();
    let value = value.trim();
    if value.is_empty() || value.ends_with(['(', '[', '{', '\\', ',']) {
        return None;
    }
    let at = start + name.len() + 1 + blank;
    Some(Setting { path: vec![key.to_owned()], span: at..at + value.len(), value: unquoted(value).to_owned() })
}

/// An argument on a line of its own: `    per_device_train_batch_size=8,  # a comment`.
fn argument(line: &str, start: usize) -> Option<Setting> {
    let indent = line.len() - line.trim_start().len();
    let (key, rest) = line[indent..].split_once('=')?;
    let value = without_comment(rest).trim_end().strip_suffix(',')?;
    let is_name = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_plain = !value.is_empty() && !value.contains(['(', ')', '[', '{', ',', '=', ' ']);
    if indent == 0 || !is_name || !is_plain {
        return None;
    }
    let at = start + indent + key.len() + 1;
    Some(Setting { path: vec![key.to_owned()], span: at..at + value.len(), value: unquoted(value).to_owned() })
}

/// The text before a `#` that stands in no string.
fn without_comment(text: &str) -> &str {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, '#') => return &text[..at],
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shown;

    #[test]
    fn assignments_with_their_places() {
        let text = "# a = 1\nbatch_size = 64 # of it\ngradient_accumulation_steps=5 * 8\ndtype = 'bf#16'\nif x == \
            3:\n    y = 4\n\
                    n: int = 2\nlist = [\n'''\nz = 5\n'''\n";
        let found = shown(&settings(text), text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(
            found,
            [
                ("batch_size", "64", "64"),
                ("gradient_accumulation_steps", "5 * 8", "5 * 8"),
                ("dtype", "bf#16", "'bf#16'"),
                ("n", "2", "2")
            ]
        );
    }
}
