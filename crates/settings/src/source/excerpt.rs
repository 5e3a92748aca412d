//! Text that somebody typed, made fit for one line of a message.

/// The most characters of a typed text that a message repeats.
const LONGEST: usize = 100;

/// The text with everything that does not print escaped, cut after 100 characters.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", one_line(&text[..end])),
        None => one_line(text),
    }
}

/// The text with everything that does not print escaped.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => line.push(character),
            _ => line.extend(character.escape_debug()),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_on_one_line() {
        assert_eq!(excerpt("a\n\u{202e}\"é"), "a\\n\\u{202e}\"é");
        assert_eq!(excerpt(&"x".repeat(101)).chars().count(), 101);
        assert_eq!(excerpt(&"x".repeat(100)), "x".repeat(100));
    }
}
