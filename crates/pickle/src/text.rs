//! Strings as the protocols write them.

/// Text as it comes out of a pickle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Whole(String),
    /// UTF-8 but for lone surrogates.
    Surrogates(Vec<u8>),
}

/// Whether bytes are UTF-8 but for surrogates, which Python writes as if they were characters.
pub(crate) fn is_utf8_but_for_surrogates(mut bytes: &[u8]) -> bool {
    loop {
        let Err(error) = std::str::from_utf8(bytes) else { return true };
        let rest = &bytes[error.valid_up_to()..];
        match rest {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, after @ ..] => bytes = after,
            _ => return false,
        }
    }
}

/// Text of UNICODE: each byte is the character of that number, but for `\uXXXX` and `\UXXXXXXXX`.
pub(crate) fn raw_unicode_escape(line: &[u8]) -> Option<Text> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line;
    while let [first, after @ ..] = rest {
        let (code, after) = match after {
            [b'u', digits @ ..] if *first == b'\\' => hex(digits, 4)?,
            [b'U', digits @ ..] if *first == b'\\' => hex(digits, 8)?,
            [b'\\', after @ ..] if *first == b'\\' => {
                bytes.push(b'\\');
                (u32::from(b'\\'), after)
            }
            _ => (u32::from(*first), after),
        };
        push_code(&mut bytes, code)?;
        rest = after;
    }
    Some(text_of(bytes))
}

fn text_of(bytes: Vec<u8>) -> Text {
    match String::from_utf8(bytes) {
        Ok(text) => Text::Whole(text),
        Err(error) => Text::Surrogates(error.into_bytes()),
    }
}

fn hex(digits: &[u8], count: usize) -> Option<(u32, &[u8])> {
    let (digits, after) = digits.split_at_checked(count)?;
    let mut code = 0;
    for digit in digits {
        code = code << 4 | char::from(*digit).to_digit(16)?;
    }
    Some((code, after))
}

/// Adds a character, or a surrogate in the same form.
fn push_code(bytes: &mut Vec<u8>, code: u32) -> Option<()> {
    if let Some(character) = char::from_u32(code) {
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        return Some(());
    }
    if code > 0x10_ffff {
        return None;
    }
    let low_six = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
    bytes.extend_from_slice(&[0xed, low_six(6), low_six(0)]);
    Some(())
}

/// Bytes of STRING, which is Python 2's `repr` of a string; `None` where the quotes or an escape are wrong.
pub(crate) fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    // Python strips blanks around it.
    let line = line.trim_ascii();
    let (quote, inner) = line.split_first()?;
    let (last, inner) = inner.split_last()?;
    if quote != last || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    unescape(inner)
}

fn unescape(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        if *first != b'\\' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let (escape, after) = after.split_first()?;
        rest = after;
        match escape {
            b'\n' => {}
            b'\\' | b'\'' | b'"' => bytes.push(*escape),
            b'a' => bytes.push(7),
            b'b' => bytes.push(8),
            b't' => bytes.push(b'\t'),
            b'n' => bytes.push(b'\n'),
            b'v' => bytes.push(11),
            b'f' => bytes.push(12),
            b'r' => bytes.push(b'\r'),
            b'x' => {
                let (code, after) = hex(after, 2)?;
                bytes.push(u8::try_from(code).ok()?);
                rest = after;
            }
            b'0'..=b'7' => {
                let more = after.iter().take(2).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                let digits = [escape].into_iter().chain(&after[..more]);
                let code = digits.fold(0_u32, |code, digit| code << 3 | u32::from(digit - b'0'));
                // `\777` wraps round in Python too.
                bytes.push((code & 0xff) as u8);
                rest = &after[more..];
            }
            // An escape that Python does not know stands for itself.
            _ => bytes.extend_from_slice(&[b'\\', *escape]),
        }
    }
    Some(bytes)
}

/// The bytes of text whose characters are all below 256.
pub(crate) fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_python_2_keep_their_escapes() {
        assert_eq!(quoted(b"'a\\n\\x41\\101\\'\\\\\\q'").unwrap(), b"a\nAA'\\\\q");
        assert_eq!(quoted(b"\"\\7\\08\\a\\b\\t\\v\\f\\r\"").unwrap(), b"\x07\x008\x07\x08\t\x0b\x0c\r");
        for wrong in [&b""[..], b"'", b"'a\"", b"a", b"'\\'", b"'\\x4'", b"'\\xg0'"] {
            assert_eq!(quoted(wrong), None, "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn unicode_is_latin_1_with_escapes() {
        let text = |line: &[u8]| raw_unicode_escape(line);
        assert_eq!(text(b"a\xe9\\u20ac\\U0001f600\\n"), Some(Text::Whole("aé€😀\\n".to_owned())));
        assert_eq!(text(b"\\\\u0041\\"), Some(Text::Whole("\\\\u0041\\".to_owned())));
        assert_eq!(text(b"x\\ud800"), Some(Text::Surrogates(b"x\xed\xa0\x80".to_vec())));
        assert_eq!(text(b"\\u12"), None);
        assert_eq!(text(b"\\U00110000"), None);
    }

    #[test]
    fn surrogates_are_the_only_exception() {
        assert!(is_utf8_but_for_surrogates(b"a\xed\xa0\x80b\xed\xbf\xbf"));
        assert!(!is_utf8_but_for_surrogates(b"a\xff"));
        assert!(!is_utf8_but_for_surrogates(b"a\xed\xa0"));
    }
}
