//! Texts from outside, made fit to be shown.
//!
//! Names of files, words of configurations, lines of logs and what the system answers may hold characters that move a
//! terminal's cursor, turn the order of what is read around, or cannot be seen at all. Whatever a person is shown passes
//! through here: such characters become what Rust's `\u{1b}` writes, and everything else stays. Ordinary text in any
//! script is as it was: joiners stand between letters that they join, selectors of variants behind what they vary.
//!
//! This happens at the place of printing (`output.rs` of both programs), so that no command has to think of it. A name
//! is passed through it before too, since only there a line end in it can be told from ours. In JSON they are JSON's
//! own escapes, so the values stay. A refusal of arguments, which repeats them, is made anew from printable ones.

use std::ffi::OsString;

/// A text on one line: line ends and tabs are written out too.
#[must_use]
pub fn printable(text: &str) -> String {
    screened(text, |_, _| false, |out, character| out.extend(character.escape_default()))
}

/// A text of several lines: line ends, also those with a carriage return before them, and tabs stay.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    let stays = |character, next| matches!((character, next), ('\n' | '\t', _) | ('\r', Some('\n')));
    screened(text, stays, |out, character| out.extend(character.escape_default()))
}

/// A text of JSON with the same values in it, in which what would not be shown as it is stands as JSON's own escapes.
#[must_use]
pub fn printable_json(json: &str) -> String {
    screened(
        json,
        |character, _| character == '\n',
        |out, character| {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        },
    )
}

/// Parses arguments. Where they are refused, the refusal speaks of what can be shown: a parser repeats what was typed.
///
/// # Errors
///
/// The arguments are refused.
pub fn parse_printable<T, E>(
    arguments: impl Iterator<Item = OsString>,
    parse: impl Fn(Vec<OsString>) -> Result<T, E>,
) -> Result<T, E> {
    let arguments: Vec<OsString> = arguments.collect();
    let shown = arguments.iter().map(|argument| printable(&argument.to_string_lossy()).into()).collect();
    parse(arguments).map_err(|refusal| parse(shown).err().unwrap_or(refusal))
}

fn screened(
    text: &str,
    stays: impl Fn(char, Option<char>) -> bool,
    mut escape: impl FnMut(&mut String, char),
) -> String {
    // Nearly all that is ever shown.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    // Where what is not in `out` yet begins: what stays is taken over in whole pieces.
    let mut taken = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        let next = rest.peek().map(|(_, next)| *next);
        if !is_plain(before, character, next) && !stays(character, next) {
            out.push_str(&text[taken..at]);
            escape(&mut out, character);
            taken = at + character.len_utf8();
        }
        before = Some(character);
    }
    out.push_str(&text[taken..]);
    out
}

/// Whether a character shows as what it is, between these two.
fn is_plain(before: Option<char>, character: char, next: Option<char>) -> bool {
    match character {
        // ASCII, Chinese and most emoji, in which nothing of what is below stands.
        ' '..='~' | '\u{4e00}'..='\u{9fff}' | '\u{1f300}'..='\u{1faff}' => true,
        // Zero-width joiner and non-joiner: parts of an emoji, letters of Persian and of India's scripts.
        '\u{200c}' | '\u{200d}' => before.is_some_and(is_base) && next.is_some_and(is_base),
        // A variant of what stands before it; of digits, `#` and `*` the one that makes them keys.
        _ if is_selector(character) => before.is_some_and(|before| {
            let is_key = character == '\u{fe0f}' && matches!(before, '0'..='9' | '#' | '*');
            is_key || is_base(before) && !is_selector(before)
        }),
        _ => !steers(character),
    }
}

/// Whether a character may be joined or varied: one that is seen, and no plain ASCII.
fn is_base(character: char) -> bool {
    !character.is_ascii() && !steers(character) && !matches!(character, '\u{200c}' | '\u{200d}')
        // The heart of an emoji is one with its variant.
        && (!is_selector(character) || character == '\u{fe0f}')
}

fn is_selector(character: char) -> bool {
    matches!(character, '\u{fe00}'..='\u{fe0f}' | '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a character steers a terminal, changes the order of reading, ends a line, or shows nothing at all.
fn steers(character: char) -> bool {
    // The last two of each plane are no characters.
    character.is_control()
        || u32::from(character) & 0xfffe == 0xfffe
        || matches!(
            character,
            // The soft hyphen, joiners of graphemes, and marks of Arabic and Mongolian that are not seen.
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}'
            // Fillers of Hangul and vowels of Khmer that show as nothing.
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}'
            // Spaces of no width, marks and embeddings of direction, line and paragraph separators.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            // Word joiners, operators that are not seen, isolates, and shapes that nobody uses any more.
            | '\u{2060}'..='\u{206f}'
            // The byte order mark, annotations, shorthand and music.
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            // Tags, in which a whole text can hide.
            | '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(printable("ünï\u{1b}[2Jx\n\u{85}"), "ünï\\u{1b}[2Jx\\n\\u{85}");
        assert_eq!(printable("\u{1b}]0;x\u{7}\r\u{9b}31m\u{7f}\t"), "\\u{1b}]0;x\\u{7}\\r\\u{9b}31m\\u{7f}\\t");
        let hidden = [
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{200e}',
            '\u{200f}',
            '\u{61c}',
            '\u{200b}',
            '\u{2028}',
            '\u{2029}',
            '\u{feff}',
            '\u{2060}',
            '\u{ad}',
            '\u{3164}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{fffe}',
            '\u{10ffff}',
            '\u{180e}',
            '\u{fff9}',
        ];
        for character in hidden {
            let shown = printable(&format!("漢{character}字"));
            assert_eq!(shown, format!("漢{}字", character.escape_default()));
        }
    }

    #[test]
    fn ordinary_text_stays() {
        for text in [
            "C:\\dir \"quoted\" 'x' ~",
            "año niño ¿qué?",
            "訓練 データ",
            "тест",
            "עברית",
            "👩\u{200d}👩\u{200d}👧 ❤\u{fe0f}\u{200d}🔥 👍🏽 🇪🇸",
            "1\u{fe0f}\u{20e3}",
            "می\u{200c}خواهم",
            "e\u{301}",
            "क\u{94d}\u{200d}ष",
            "\u{fffd}",
            "\u{a0}",
            "葛\u{e0100}",
        ] {
            assert_eq!(printable(text), text);
            assert_eq!(printable_lines(text), text);
            assert_eq!(printable_json(text), text);
        }
    }

    #[test]
    fn joiners_and_selectors_hide_nothing_by_themselves() {
        assert_eq!(printable("a\u{200d}b"), "a\\u{200d}b");
        assert_eq!(printable("é\u{200d}\u{200d}é"), "é\\u{200d}\\u{200d}é");
        assert_eq!(printable("a\u{fe0f}b"), "a\\u{fe0f}b");
        assert_eq!(printable("😀\u{e0101}\u{e0102}"), "😀\u{e0101}\\u{e0102}");
        assert_eq!(printable("❤\u{fe0f}\u{fe0f}"), "❤\u{fe0f}\\u{fe0f}");
        assert_eq!(printable("\u{200d}"), "\\u{200d}");
    }

    #[test]
    fn lines_and_json_keep_their_form() {
        assert_eq!(printable_lines("a\tb\r\nc\rd\u{1b}\n"), "a\tb\r\nc\\rd\\u{1b}\n");
        let value = "{\n\"a\": \"\u{9b}\u{7f}\u{202e}\u{e0041}é\"\n}";
        assert_eq!(printable_json(value), "{\n\"a\": \"\\u009b\\u007f\\u202e\\udb40\\udc41é\"\n}");
    }

    #[test]
    fn what_is_shown_is_shown_again_as_it_is() {
        let text = "a\u{1b}\\u{1b}\u{202e}\n";
        assert_eq!(printable(&printable(text)), printable(text));
    }

    #[test]
    fn a_refusal_repeats_what_can_be_shown() {
        let parse = |words: Vec<OsString>| match words[0].to_str() {
            Some("good\n") => Ok(()),
            _ => Err(words),
        };
        let words = |text: &str| std::iter::once(OsString::from(text));
        assert_eq!(parse_printable(words("good\n"), parse), Ok(()));
        assert_eq!(parse_printable(words("\u{1b}x"), parse), Err(vec![OsString::from("\\u{1b}x")]));
    }
}
