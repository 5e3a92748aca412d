//! Assignments at the left edge of a Python file, `batch_size = 64  # a comment`, and arguments on lines of their own.

use crate::{Setting, unquoted};

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
        if !was_in_string {
            settings.extend(assignment(line, start).or_else(|| argument(line, start)));
            match line.contains("add_argument(") {
                true => settings.extend(default(line, start)),
                false => settings.extend(inline(line, start)),
            }
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
    Some(Setting::new(vec![key.to_owned()], at..at + value.len(), unquoted(value)))
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
    Some(plain(key, value, at))
}

/// Arguments among others in one line: `TrainingArguments("o", per_device_train_batch_size=8)`.
fn inline(line: &str, start: usize) -> Vec<Setting> {
    let code = without_comment(line);
    let Some(open) = code.find('(') else { return Vec::new() };
    let arguments = code[open..].match_indices('=').filter_map(|(at, _)| {
        let at = open + at;
        let name_start = code[..at].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        let before = code[..name_start].trim_end();
        let length = expression(&code[at + 1..]);
        let is_argument = before.ends_with(['(', ',']) && length > 0 && !code[at + 1..].starts_with(['=', ' ']);
        let name = &code[name_start..at];
        (is_argument && !name.is_empty()).then(|| plain(name, &code[at + 1..at + 1 + length], start + at + 1))
    });
    arguments.collect()
}

/// The default of an option: `parser.add_argument("--batch-size", type=int, default=64)`.
fn default(line: &str, start: usize) -> Option<Setting> {
    let (_, rest) = line.split_once("add_argument(")?;
    let (_, option) = rest.split_once("--")?;
    let name = option.split(['"', '\'']).next()?.replace('-', "_");
    let at = line.find("default=")? + "default=".len();
    let length = expression(without_comment(&line[at..]));
    (length > 0).then(|| plain(&name, &line[at..at + length], start + at))
}

/// How long the expression at the beginning of a text is: up to a comma or a bracket that is none of its own.
fn expression(text: &str) -> usize {
    let (mut depth, mut quote) = (0_u32, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') if depth > 0 => depth -= 1,
            (None, ',' | ')' | ']' | '}') if depth == 0 => return text[..at].trim_end().len(),
            _ => {}
        }
    }
    text.trim_end().len()
}

fn plain(name: &str, value: &str, at: usize) -> Setting {
    let setting = Setting::new(vec![name.to_owned()], at..at + value.len(), unquoted(value));
    Setting { is_argument: true, ..setting }
}

/// The text before a `#` that stands in no string.
pub(crate) fn without_comment(text: &str) -> &str {
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
