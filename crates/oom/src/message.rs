//! One line of a log, with the lines that go on with it.

use std::borrow::Cow;
use std::cell::OnceCell;

use crate::phrase::has_any;

/// How many lines after the first are taken for one message.
const MOST_LINES: usize = 24;

/// A line to be read, cleaned of colours, and the message it opens.
pub(crate) struct Message<'a> {
    /// The line itself.
    pub(crate) line: Cow<'a, str>,
    rest: &'a [u8],
    body: OnceCell<String>,
}

impl<'a> Message<'a> {
    /// Takes a line and the text that follows it.
    pub(crate) fn new(line: &'a [u8], rest: &'a [u8]) -> Self {
        Self { line: clean(line), rest, body: OnceCell::new() }
    }

    /// The line and what goes on with it, as one line: engines and terminals break messages at any blank.
    pub(crate) fn body(&self) -> &str {
        self.body.get_or_init(|| {
            let mut body = self.line.clone().into_owned();
            for next in self.rest.split(|&byte| byte == b'\n').take(MOST_LINES) {
                let next = clean(next);
                let next = next.trim();
                if next.is_empty() || starts_another(next) {
                    break;
                }
                body.push(' ');
                body.push_str(next);
            }
            body
        })
    }
}

/// Whether a line is the start of something else, so that its figures belong there.
fn starts_another(line: &str) -> bool {
    has_any(
        line,
        &["ut of memory", "OutOfMemoryError", "Traceback (most recent", "During handling of", "invoked oom-killer"],
    )
}

/// The bytes as text, without terminal colours.
pub(crate) fn clean(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    if text.contains('\u{1b}') { Cow::Owned(without_colours(&text)) } else { text }
}

fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        plain.push_str(&part[end..]);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_at_a_blank_line_or_where_another_starts() {
        let message = Message::new(b"\x1b[31mone\x1b[0m", b"  two\r\n\nthree");
        assert_eq!((&*message.line, message.body()), ("one", "one two"));
        let message = Message::new(b"one", b"two\nCUDA out of memory\nthree");
        assert_eq!(message.body(), "one two");
    }
}
