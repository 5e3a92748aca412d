//! One line of a log, with the lines that go on with it.

use std::borrow::Cow;
use std::cell::OnceCell;

use crate::level::is_level;
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

    /// The lines above, as many as are seen.
    pub(crate) fn lines_above(&self) -> Cow<'a, str> {
        clean(self.above)
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
            let mut body = without_source(self.line.trim_end()).to_owned();
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

    /// The message and what stands below it behind a blank line, for those that are written in two paragraphs.
    pub(crate) fn with_next_paragraph(&self) -> String {
        let mut text = self.line.trim_end().to_owned();
        for next in self.rest.split(|&byte| byte == b'\n').take(MOST_LINES) {
            let next = clean(next);
            let next = next[margin(&self.line, &next)..].trim();
            if next.starts_with("Traceback (most recent") {
                break;
            }
            text.push(' ');
            text.push_str(next);
        }
        text
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

    /// The text around this line in which a phrase stands that terminals may have broken, at a blank or in a word; the phrase
    /// must lie in this line at least in part.
    pub(crate) fn around(&self, phrase: &str) -> Option<String> {
        if self.line.contains(phrase) {
            return Some(self.body().to_owned());
        }
        let above = self.above();
        let line = self.line[margin(&above, &self.line)..].trim();
        [" ", ""].into_iter().find_map(|joint| {
            let mut whole = format!("{}{joint}{line}", above.trim());
            let (start, end) = (whole.len() - line.len(), whole.len());
            self.each_further(|next| {
                whole.push_str(joint);
                whole.push_str(next);
            });
            let at = whole.find(phrase)?;
            (at < end && at + phrase.len() > start).then_some(whole)
        })
    }

    /// Hands over the lines that go on with the first, without the margin they share with it.
    fn each_further(&self, mut take: impl FnMut(&str)) {
        for next in self.rest.split(|&byte| byte == b'\n').take(MOST_LINES) {
            let next = clean(next);
            let next = next[margin(&self.line, &next)..].trim();
            if next.is_empty() || starts_another(next) || is_entry(next) {
                break;
            }
            take(next);
        }
    }
}

/// A line without the file and the number that rich puts behind the first one of an entry: `... a total capacity of 14.58   train.py:47`.
fn without_source(line: &str) -> &str {
    let Some((text, source)) = line.rsplit_once(' ') else { return line };
    let number = source.split_once(".py:").map_or("", |(_, number)| number);
    let is_source = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_source { text.trim_end() } else { line }
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
        let is_mark = one == ':' && next[..at].ends_with(']');
        let follows = second.peek().map_or(' ', |(_, c)| *c);
        has_clock |= one == ':' && follows.is_ascii_digit();
        if one == ' ' {
            word = at + 1;
        }
        if one == '>' || is_mark || matches!(one, '|' | ']' | ':' | ')') && follows == ' ' {
            shared = at + one.len_utf8();
        }
    }
    if has_clock { shared.max(word) } else { shared }
}

/// A line without what whoever collected it put before it: quotation marks, ranks, names of containers, clocks.
#[must_use]
pub fn without_prefix(line: &str) -> &str {
    let mut rest = line;
    loop {
        let shorter = without_mark(rest).or_else(|| without_container(rest)).or_else(|| without_clock(rest));
        let Some(shorter) = shorter else { return rest };
        rest = shorter;
    }
}

/// `> `, `[rank3]: `, `[default1]:`, `[1,3]<stderr>:`, `3: `.
fn without_mark(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix('>') {
        return Some(rest.strip_prefix(' ').unwrap_or(rest));
    }
    let is_number = |text: &str| !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mark, rest) = line.split_once(':')?;
    let bracketed = mark.strip_prefix('[').and_then(|mark| mark.split_once(']')).is_some_and(|(name, stream)| {
        name.len() <= 16
            && name.ends_with(|last: char| last.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b',')
            && (stream.is_empty() || stream.starts_with('<'))
    });
    let is_label = is_number(mark) && (rest.is_empty() || rest.starts_with(' '));
    (bracketed || is_label).then(|| rest.strip_prefix(' ').unwrap_or(rest))
}

/// `trainer-1  | `
fn without_container(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once(" | ").or_else(|| Some((line.strip_suffix(" |")?, "")))?;
    let name = name.trim_end();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_container = !name.is_empty() && name.len() <= 40 && name.bytes().all(is_name);
    is_container.then_some(rest)
}

/// `2026-01-02T03:04:05.1Z `, `2026-01-02 03:04:05,1 `, with Kubernetes' `stderr F `, or `Jan 17 16:39:29 host run[4173]: `.
fn without_clock(line: &str) -> Option<&str> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    if line.get(..3).is_some_and(|month| MONTHS.contains(month)) && line.as_bytes().get(3) == Some(&b' ') {
        let (head, rest) = line.split_once("]: ")?;
        return (head.len() <= 80 && head.contains(':')).then_some(rest);
    }
    let word = |text: &str| text.find(' ').unwrap_or(text.len());
    let date = &line[..word(line)];
    let is_date = |text: &str| {
        text.len() >= 10 && text.as_bytes()[4] == b'-' && text.bytes().take(4).all(|byte| byte.is_ascii_digit())
    };
    let is_clock = |text: &str| {
        text.matches(':').count() == 2
            && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b','))
    };
    if !is_date(date) {
        return None;
    }
    let rest = line[date.len()..].strip_prefix(' ').unwrap_or_default();
    let rest = match date.contains(':') {
        true => rest,
        false => Some(rest).filter(|rest| is_clock(&rest[..word(rest)])).map(|rest| rest[word(rest)..].trim_start())?,
    };
    let stream =
        ["stdout F ", "stderr F ", "stdout P ", "stderr P "].iter().find_map(|stream| rest.strip_prefix(stream));
    Some(stream.unwrap_or(rest))
}

/// Whether a line is the start of something else, so that its figures belong there.
fn starts_another(line: &str) -> bool {
    has_any(
        line,
        &["ut of memory", "OutOfMemoryError", "Traceback (most recent", "During handling of", "invoked oom-killer"],
    )
}

/// Whether a line begins as loggers begin an entry, by a clock or a level: what is written in several lines has the same before all of
/// them, which is left out before this is asked.
pub(crate) fn is_entry(line: &str) -> bool {
    let opening = line.trim_start_matches(['[', '(', '<']);
    let word = &opening[..opening.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(opening.len())];
    let behind = &opening[word.len()..];
    let is_set_apart = opening.len() < line.len() || behind.starts_with(':');
    // Where nothing sets it apart, a level is written in capitals.
    let is_capital = behind.starts_with(' ') && word.bytes().all(|byte| byte.is_ascii_uppercase());
    (is_set_apart || is_capital) && is_level(word) || is_glog(word) || is_clock(opening)
}

/// `E0501`: the level and the day.
fn is_glog(word: &str) -> bool {
    word.len() == 5 && word.starts_with(['I', 'W', 'E', 'F']) && word[1..].bytes().all(|byte| byte.is_ascii_digit())
}

/// `2026-01-02 `, `2026/01/02`, `03:04:05`
fn is_clock(text: &str) -> bool {
    let has = |form: &str| {
        text.len() >= form.len()
            && text.bytes().zip(form.bytes()).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                b'-' => matches!(byte, b'-' | b'/'),
                form => byte == form,
            })
    };
    has("0000-00-00") || has("00:00:00") || without_clock(text).is_some()
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
        for entry in [
            "INFO data: 5.00 GiB cached in RAM",
            "[info] five",
            "WARNING:root: five",
            "E0501 worker.py:12] task failed on host t1v",
            "2026-01-02 03:04:05 five",
            "[2026/01/02 03:04:05] five",
            "03:04:05 five",
            "Jan 17 16:39:29 host run[4173]: five",
        ] {
            assert_eq!(Message::new(b"one", entry.as_bytes()).body(), "one", "{entry}");
        }
        for further in ["Error code 12 (Cannot allocate memory)", "Information is five", "12:30 of it", "E05 is five"] {
            assert_eq!(Message::new(b"one", further.as_bytes()).body(), format!("one {further}"));
        }
        let message = Message::new(b"2026-01-02 03:04:05 ERROR one", b"2026-01-02 03:04:06 ERROR two");
        assert_eq!(message.body(), "2026-01-02 03:04:05 ERROR one two");
    }

    #[test]
    fn prefixes_of_those_who_collect_lines() {
        for (line, rest) in [
            ("> > Killed", "Killed"),
            ("[rank3]: Killed", "Killed"),
            ("[1,3]<stderr>:Killed", "Killed"),
            ("3: Killed", "Killed"),
            ("trainer-1  | Killed", "Killed"),
            ("2026-01-02T03:04:05.123456Z Killed", "Killed"),
            ("2026-01-02 03:04:05,123 Killed", "Killed"),
            ("2026-03-02T10:11:12.123456789Z stderr F   File", "  File"),
            ("Jan 17 16:39:29 host run[4173]: Killed", "Killed"),
            ("RuntimeError: x", "RuntimeError: x"),
            ("| 0 | 1 |", "| 0 | 1 |"),
            ("2026-01-02", "2026-01-02"),
            ("", ""),
        ] {
            assert_eq!(without_prefix(line), rest, "{line}");
        }
    }

    #[test]
    fn a_phrase_is_found_where_a_terminal_broke_it() {
        let above = b"(pid=3) ValueError: less than desi\n";
        let message = Message::new(b"(pid=3) red GPU memory (0.9,", b"(pid=3) 3.6 GiB)").below(above);
        let whole = message.around("less than desired GPU").unwrap();
        assert_eq!(whole, "(pid=3) ValueError: less than desired GPU memory (0.9,3.6 GiB)");
        assert_eq!(message.around("ValueError: less"), None);
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
