//! Lines of a log, and the colours in them.

use std::borrow::Cow;

use memchr::memchr;

/// The lines of a text; a carriage return ends one too, since progress bars overwrite themselves by it.
pub(crate) fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b'\n' | b'\r'))
}

/// A text without the control sequences of a terminal.
pub(crate) fn without_colours(text: &[u8]) -> Cow<'_, [u8]> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_all_else_stays() {
        let plain = |text: &str| String::from_utf8(without_colours(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(plain("\x1b[1;35mValueError\x1b[0m: no [x] \x1b[Kend\x1b["), "ValueError: no [x] end");
        assert_eq!(plain("a [b] c"), "a [b] c");
    }
}
