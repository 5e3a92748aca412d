//! YAML, by the parser's events; anchors and tags are read over.

use saphyr_parser::{Event, Parser, Span};

use crate::{Gap, GapKind, Scope, Setting};

const DEEPEST: usize = 64;
const MOST: usize = 100_000;

enum Level {
    Group { key: Option<String> },
    List { next: usize },
}

/// Every plain value with the keys that lead to it, and what has another one; the line and the problem where the text
/// is no YAML.
pub(crate) fn settings(text: &str) -> Result<(Vec<Setting>, Vec<Gap>), (usize, String)> {
    let starts = line_starts(text);
    let at = |span: Span| starts.get(span.start.line().saturating_sub(1)).copied().unwrap_or_default();
    let (mut settings, mut gaps) = (Vec::new(), Vec::new());
    let mut levels: Vec<Level> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    let mut events = 0;
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| (error.marker().line(), error.info().to_owned()))?;
        events += 1;
        if events > MOST || levels.len() > DEEPEST {
            return Err((span.start.line(), "it is larger or deeper than a configuration".to_owned()));
        }
        match event {
            Event::Scalar(value, ..) => {
                if let Some(Level::Group { key: key @ None }) = levels.last_mut() {
                    *key = Some(value.into_owned());
                    continue;
                }
                let path = path(&levels);
                match bytes(text, &starts, span) {
                    Some(span) => settings.push(Setting::new(path, span, value)),
                    None => gaps.push(Gap::new(path, at(span), &value, GapKind::Computed, Scope::Entry)),
                }
                passed(&mut levels);
            }
            Event::MappingStart(..) => levels.push(Level::Group { key: None }),
            Event::SequenceStart(..) => levels.push(Level::List { next: 0 }),
            Event::MappingEnd | Event::SequenceEnd => {
                levels.pop();
                passed(&mut levels);
            }
            Event::Alias(_) => {
                let written = bytes(text, &starts, span).map_or("", |span| &text[span]);
                gaps.push(Gap::new(path(&levels), at(span), written, GapKind::Alias, Scope::Entry));
                passed(&mut levels);
            }
            _ => {}
        }
    }
    Ok((settings, gaps))
}

/// A value of the innermost level is through: the next one has a key of its own.
fn passed(levels: &mut [Level]) {
    match levels.last_mut() {
        Some(Level::Group { key }) => *key = None,
        Some(Level::List { next }) => *next += 1,
        None => {}
    }
}

fn path(levels: &[Level]) -> Vec<String> {
    let part = |level: &Level| match level {
        Level::Group { key } => key.clone(),
        Level::List { next } => Some(next.to_string()),
    };
    levels.iter().filter_map(part).collect()
}

/// Where each line starts, and how many characters stand before it.
fn line_starts(text: &str) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
    starts
}

/// A span in bytes; `None` for a value that goes over several lines or is not written at all.
fn bytes(text: &str, starts: &[usize], span: Span) -> Option<std::ops::Range<usize>> {
    if span.start.line() != span.end.line() {
        return None;
    }
    let line_start = *starts.get(span.start.line().checked_sub(1)?)?;
    let line = text.get(line_start..)?.lines().next()?;
    let at = |column: usize| line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(column);
    let (start, end) = (at(span.start.col())?, at(span.end.col())?);
    let end = start + line.get(start..end)?.trim_end().len();
    let start = start + properties(&line[start..end]);
    (start < end).then_some(line_start + start..line_start + end)
}

/// How long the anchor and the tag before a value are: `&name !!int 3`.
fn properties(value: &str) -> usize {
    let mut at = 0;
    while value[at..].starts_with(['&', '!']) {
        let word = value[at..].find(char::is_whitespace).unwrap_or(value.len() - at);
        let blanks = value[at + word..].len() - value[at + word..].trim_start().len();
        at += word + blanks;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shown;

    #[test]
    fn nested_keys_with_their_places() {
        let text = "batch: &b !!int 32 # x\nagain: *b\n";
        assert_eq!(shown(&settings(text).unwrap().0, text), [("batch".to_owned(), "32".to_owned(), "32".to_owned())]);
        let gaps = settings(text).unwrap().1;
        assert_eq!((&*gaps[0].path, &*gaps[0].text), (&["again".to_owned()][..], "*b"));
        let text = "# ü\nDATA:\n  CROP_SIZE: 256  # 剪\n  VAL_CROP_SIZE: null\n  LIST: [1, {a: 'x'}]\nTRAIN: {batch: \
            4}\nempty:\n";
        let found = shown(&settings(text).unwrap().0, text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(
            found,
            [
                ("DATA.CROP_SIZE", "256", "256"),
                ("DATA.VAL_CROP_SIZE", "null", "null"),
                ("DATA.LIST.0", "1", "1"),
                ("DATA.LIST.1.a", "x", "'x'"),
                ("TRAIN.batch", "4", "4")
            ]
        );
        assert_eq!(settings("a: [1\nb: 2").unwrap_err().0, 2);
    }
}
