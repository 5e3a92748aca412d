//! Lines of a log: the colours in them, and what stands before them because several processes, or a logger, write into
//! one log.

use std::borrow::Cow;

use memchr::{memchr, memmem};

use crate::number::leading_number;

/// The longest name of a process in a mark.
const LONGEST_MARK: usize = 16;
/// What launchers of several processes write.
const GROUP_SIGNS: [&str; 6] =
    ["[rank0]:", "[rank1]:", "torch/distributed/", "(local_rank: ", "LOCAL_RANK: 1", "-- Process 1 terminated"];

/// The lines of a text; a carriage return ends one too, since progress bars overwrite themselves by it.
pub(crate) fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b'\n' | b'\r'))
}

/// A text without the control sequences of a terminal.
#[must_use]
pub fn without_colours(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(0x1b, text) else { return Cow::Borrowed(text) };
    let mut plain = text[..first].to_vec();
    let mut rest = &text[first..];
    while let Some(at) = memchr(0x1b, rest) {
        plain.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let [b'[', sequence @ ..] = rest {
            // Parameters, then one byte that says what they are for.
            let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte));
            rest = end.map_or(&[], |end| &sequence[end + 1..]);
        }
    }
    plain.extend_from_slice(rest);
    Cow::Owned(plain)
}

/// The last lines of a text as a terminal shows them: without colours, and of what overwrote itself the last.
///
/// `count` is the most lines, and none is longer than `longest` characters.
#[must_use]
pub fn last_lines(text: &[u8], count: usize, longest: usize) -> Vec<String> {
    let plain = without_colours(text);
    let shown = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let last = line.rsplit(|byte| *byte == b'\r').find(|part| !part.is_empty()).unwrap_or(line);
        String::from_utf8_lossy(last).chars().take(longest).collect::<String>()
    };
    let plain = plain.strip_suffix(b"\n").unwrap_or(&plain);
    let mut lines: Vec<String> = plain.rsplit(|byte| *byte == b'\n').take(count).map(shown).collect();
    lines.reverse();
    lines
}

/// Whether a text is of several processes that train together.
#[must_use]
pub fn is_of_group(text: &[u8]) -> bool {
    GROUP_SIGNS.iter().any(|sign| memmem::find(text, sign.as_bytes()).is_some()) || is_launched_as_group(text)
}

/// Whether a command in a text starts more than one process: `torchrun --nproc_per_node=4`.
fn is_launched_as_group(text: &[u8]) -> bool {
    ["--nproc_per_node", "--nproc-per-node", "--num_processes", "--num_gpus"].iter().any(|flag| {
        memmem::find_iter(text, flag.as_bytes()).any(|at| {
            let value = &text[at + flag.len()..];
            value.first().is_some_and(|byte| matches!(byte, b'=' | b' '))
                && leading_number(&value[1..]).is_some_and(|(count, _)| count > 1)
        })
    })
}

/// A line in two: the mark of its process, `[rank3]: `, torchrun's `[default0]:` or the `3: ` of `srun --label`, and the
/// rest; the mark is empty where there is none.
pub(crate) fn split_rank(line: &str) -> (&str, &str) {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = |name: &str| {
        name.len() <= LONGEST_MARK
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && name.ends_with(|last: char| last.is_ascii_digit())
    };
    let bracketed = || line.strip_prefix('[')?.split_once("]:").filter(|(name, _)| is_name(name));
    let is_apart = |rest: &str| rest.is_empty() || rest.starts_with(' ');
    let is_label = |(label, rest): &(&str, &str)| label.len() <= 5 && is_number(label) && is_apart(rest);
    let Some((_, rest)) = bracketed().or_else(|| line.split_once(':').filter(is_label)) else { return ("", line) };
    (&line[..line.len() - rest.len()], rest.strip_prefix(' ').unwrap_or(rest))
}

/// The margin that a logger or a collector put before every line of a text, as the first line has it.
///
/// It has a number, a bar or a path in it, as clocks, processes and containers do: words alone are a program's own.
#[must_use]
pub fn shared_margin(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next()?;
    let is_end = |(at, sign): &(usize, char)| {
        let head = &first[..*at];
        match sign {
            // torchrun puts no blank behind its mark.
            ':' if head.ends_with(']') => true,
            // Kubernetes names the stream behind the clock.
            ' ' => head.rsplit(' ').next().is_some_and(|word| has_clock(word) || matches!(word, "F" | "P")),
            _ if !first[at + sign.len_utf8()..].starts_with(' ') => false,
            ']' | ')' | ':' => true,
            // Behind a name they set a field apart; elsewhere they open an item of a list or a row of a table.
            '-' | '|' => head.rsplit(' ').find(|word| !word.is_empty()).is_some_and(is_name_of_source),
            _ => false,
        }
    };
    let ends = first.char_indices().take(LONGEST_MARGIN).filter(is_end).map(|(at, sign)| at + sign.len_utf8());
    let ends: Vec<usize> = ends.collect();
    let margin = ends.into_iter().rev().map(|end| &first[..end]).find(|margin| {
        is_margin(margin)
            && text.lines().filter(|line| !line.trim().is_empty()).all(|line| without_margin(line, margin).is_some())
    })?;
    let mut rests: Vec<&str> = lines.take(FEWEST_LINES).filter_map(|line| without_margin(line, margin)).collect();
    rests.dedup();
    (rests.len() >= FEWEST_LINES - 1).then_some(margin)
}

/// `trainer-1`, `ERROR`: no clock, and no mark.
fn is_name_of_source(word: &str) -> bool {
    word.len() > 1 && word.ends_with(char::is_alphanumeric) && word.contains(char::is_alphabetic) && !has_clock(word)
}

/// Whether a text has hours, minutes and seconds in it.
fn has_clock(text: &str) -> bool {
    let bytes = text.as_bytes();
    let between_digits =
        |at: usize| at > 0 && bytes[at - 1].is_ascii_digit() && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
    memchr::memchr_iter(b':', bytes).filter(|at| between_digits(*at)).count() > 1
}

/// No margin is longer.
const LONGEST_MARGIN: usize = 100;
/// Fewer lines than this may begin alike by chance.
const FEWEST_LINES: usize = 3;

fn is_margin(text: &str) -> bool {
    let names_source = text.contains(|c: char| c.is_ascii_digit() || c == '|' || c == '/');
    names_source
        && text.contains(char::is_alphanumeric)
        && !["Error", "memory", "Memory", "Killed", "File \"", "%|"].iter().any(|word| text.contains(word))
}

/// A line without a margin such as a logger puts before every line: the same text, but for the digits of its numbers.
#[must_use]
pub fn without_margin<'a>(line: &'a str, margin: &str) -> Option<&'a str> {
    let (mut margin, mut rest) = (margin.trim_end(), line);
    if margin.is_empty() {
        return None;
    }
    while let Some(expected) = margin.chars().next() {
        if expected.is_ascii_digit() {
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() == rest.len() {
                return None;
            }
            rest = after;
            margin = margin.trim_start_matches(|c: char| c.is_ascii_digit());
        } else {
            rest = rest.strip_prefix(expected)?;
            margin = &margin[expected.len_utf8()..];
        }
    }
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_all_else_stays() {
        let plain = |text: &str| String::from_utf8(without_colours(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(plain("\x1b[1;35mValueError\x1b[0m: no [x] \x1b[Kend\x1b["), "ValueError: no [x] end");
        assert_eq!(plain("a [b] c"), "a [b] c");
    }

    #[test]
    fn the_last_lines_are_as_a_terminal_shows_them() {
        let text = b"first\n 10%|#\r 50%|##\r\n\x1b[32mthird\x1b[0m\r\n\nlast is long";
        assert_eq!(last_lines(text, 4, 7), [" 50%|##", "third", "", "last is"]);
        assert_eq!(last_lines(b"a\nb\n", 9, 7), ["a", "b"]);
        assert_eq!(last_lines(b"", 9, 7), [""]);
    }

    #[test]
    fn marks_of_processes() {
        for (line, expected) in [
            ("[rank3]:   File", ("[rank3]:", "  File")),
            ("[default0]:step 5", ("[default0]:", "step 5")),
            ("3:   File", ("3:", "  File")),
            ("12: ValueError: x", ("12:", "ValueError: x")),
            ("12:", ("12:", "")),
            ("11:22:33 x", ("", "11:22:33 x")),
            ("[Errno 2]: no", ("", "[Errno 2]: no")),
            ("[2025-03-01][main]: x", ("", "[2025-03-01][main]: x")),
            ("iter 3: loss", ("", "iter 3: loss")),
            ("", ("", "")),
        ] {
            assert_eq!(split_rank(line), expected, "{line}");
        }
    }

    #[test]
    fn margins_that_lines_share() {
        let shared = |margin: &str| {
            let log = ["a 1", "b: c", "| x | 3 |", "Killed"].map(|line| format!("{margin}{line}\n")).concat();
            shared_margin(&log).map(str::to_owned)
        };
        for margin in
            ["[pod/train-0/trainer]", "trainer-1  |", "[rank3]:", "3:", "2026-01-02 03:04:05,123 - x - ERROR -"]
        {
            assert_eq!(shared(&format!("{margin} ")).as_deref().map(str::trim_end), Some(margin));
        }
        assert_eq!(shared("[default1]:").as_deref(), Some("[default1]:"));
        assert_eq!(shared(""), None);
        assert_eq!(shared("llama_model_load: "), None);
        assert_eq!(shared_margin("| a | 1 |\n| b | 2 |\n| c | 3 |\n| d | 4 |\n"), None);
        assert_eq!(shared_margin("step 1: a\nstep 2: b\n"), None);
    }

    #[test]
    fn margins_of_loggers_differ_in_their_numbers() {
        let margin = "[2025-03-01 11:22:00,123][main] - ";
        assert_eq!(without_margin("[2025-03-01 11:22:01,7][main] -   File", margin), Some("  File"));
        assert_eq!(without_margin("[2025-03-01 11:22:01,7][main] -", margin), Some(""));
        assert_eq!(without_margin("ValueError: x", margin), None);
        assert_eq!(without_margin("  File", ""), None);
    }
}
