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
    above: &'a [u8],
    rest: &'a [u8],
    body: OnceCell<String>,
}

impl<'a> Message<'a> {
    /// Takes a line and the text that follows it.
    pub(crate) fn new(line: &'a [u8], rest: &'a [u8]) -> Self {
        Self { line: clean(line), above: b"", rest, body: OnceCell::new() }
    }

    /// The same below the text `above`.
    pub(crate) fn below(self, above: &'a [u8]) -> Self {
        Self { above, ..self }
    }

    /// The line above.
    pub(crate) fn above(&self) -> Cow<'a, str> {
        let above = self.above.strip_suffix(b"\n").unwrap_or(self.above);
        let start = memchr::memrchr(b'\n', above).map_or(0, |newline| newline + 1);
        clean(&above[start..])
    }

    /// The line and what goes on with it, as one line: engines and terminals break messages at any blank.
    pub(crate) fn body(&self) -> &str {
        self.body.get_or_init(|| {
            let mut body = self.line.clone().into_owned();
            self.each_further(|next| {
                // A terminal breaks a number as it breaks words.
                let is_number = body.ends_with(|c: char| c.is_ascii_digit() || c == '.')
                    && next.starts_with(|c: char| c.is_ascii_digit() || c == '.');
                if !is_number {
                    body.push(' ');
                }
                body.push_str(next);
            });
            body
        })
    }

    /// The same for a terminal that breaks lines at its width, in the middle of words; `None` for a single line.
    pub(crate) fn body_broken_in_words(&self) -> Option<String> {
        let mut body = self.line.trim_end_matches('\r').to_owned();
        let mut is_broken = false;
        self.each_further(|next| {
            body.push_str(next);
            is_broken = true;
        });
        is_broken.then_some(body)
    }

    /// Hands over the lines that go on with the first, without the margin they share with it.
    fn each_further(&self, mut take: impl FnMut(&str)) {
        for next in self.rest.split(|&byte| byte == b'\n').take(MOST_LINES) {
            let next = clean(next);
            let next = next[margin(&self.line, &next)..].trim();
            if next.is_empty() || starts_another(next) {
                break;
            }
            take(next);
        }
    }
}

/// How much two lines share at their start because of who wrote them down: `> `, `app-1  | `, `[rank0]: `, a clock. Numbers may
/// differ.
fn margin(line: &str, next: &str) -> usize {
    let (mut first, mut second) = (line.chars().peekable(), next.char_indices().peekable());
    let (mut shared, mut word, mut has_clock) = (0, 0, false);
    while let (Some(&one), Some(&(at, other))) = (first.peek(), second.peek()) {
        if one.is_ascii_digit() && other.is_ascii_digit() {
            while first.next_if(char::is_ascii_digit).is_some() {}
            while second.next_if(|(_, c)| c.is_ascii_digit()).is_some() {}
            continue;
        }
        if one != other {
            break;
        }
        first.next();
        second.next();
        let follows = second.peek().map_or(' ', |(_, c)| *c);
        has_clock |= one == ':' && follows.is_ascii_digit();
        if one == ' ' {
            word = at + 1;
        }
        if one == '>' || matches!(one, '|' | ']' | ':' | ')') && follows == ' ' {
            shared = at + one.len_utf8();
        }
    }
    if has_clock { shared.max(word) } else { shared }
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

    #[test]
    fn what_a_margin_or_a_terminal_broke_is_joined() {
        let message = Message::new(b"> GPU 0 has a total", b"> capacity of 4\n> 0.30 GiB\n");
        assert_eq!(message.body(), "> GPU 0 has a total capacity of 40.30 GiB");
        let message = Message::new(b"app-1  | 12:01:07 one", b"app-1  | 12:01:08 two");
        assert_eq!(message.body(), "app-1  | 12:01:07 one two");
        let message = Message::new(b"[rank1]: 4.00 GiB is allo", b"[rank1]: cated by PyTorch");
        assert_eq!(message.body_broken_in_words().as_deref(), Some("[rank1]: 4.00 GiB is allocated by PyTorch"));
        assert_eq!(Message::new(b"one", b"").body_broken_in_words(), None);
    }
}
