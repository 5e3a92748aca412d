//! What somebody typed, made fit for one line of a message.

use lowtide_core::printable;
use serde_json::Value;

/// The most characters of a typed text that a message repeats.
const LONGEST: usize = 100;

/// The text with everything that does not print escaped, cut after 100 characters.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", printable(&text[..end])),
        None => printable(text),
    }
}

/// What a value is, in words for a message.
pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Null => "nothing (null)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("\"{}\"", excerpt(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a group of keys".to_owned(),
    }
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
