//! JSON; comments after `//` are read over, as DeepSpeed's configurations have them.
//!
//! All JSON is YAML too, so that the reader of YAML finds the places, once it is known to be JSON.

use serde::de::IgnoredAny;

use crate::{Gap, Setting, yaml};

/// Every plain value with the keys that lead to it, and what has another one; the line and the problem where the text
/// is no JSON.
pub(crate) fn settings(text: &str) -> Result<(Vec<Setting>, Vec<Gap>), (usize, String)> {
    let text = without_comments(text);
    serde_json::from_str::<IgnoredAny>(&text).map_err(|error| {
        let problem = error.to_string();
        // The line is told apart from the problem.
        (error.line().max(1), problem.split(" at line ").next().unwrap_or(&problem).to_owned())
    })?;
    // Between tokens tabs are as good as blanks, and in a string JSON has none.
    yaml::settings(&text.replace('\t', " "))
}

/// The text with blanks in the place of comments, so that all else stays where it is.
fn without_comments(text: &str) -> String {
    let mut in_string = false;
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => at += 1,
            b'/' if !in_string && bytes.get(at + 1) == Some(&b'/') => {
                let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length);
                bytes[at..end].fill(b' ');
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    String::from_utf8(bytes).expect("whole lines' ends were blanked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shown;

    #[test]
    fn nested_keys_with_their_places() {
        let text = "{\"a\": {\"b\": 3, \"c\": [true, \"x\\\"y\"]}, // note\n \"d\": null}\n";
        let found = shown(&settings(text).unwrap().0, text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(
            found,
            [("a.b", "3", "3"), ("a.c.0", "true", "true"), ("a.c.1", "x\"y", "\"x\\\"y\""), ("d", "null", "null")]
        );
    }

    #[test]
    fn tabs_comments_and_letters_beyond_ascii_move_nothing() {
        let text = "{\n\t\"ü\": \"//剪\",\t// \"a\": 3\n\t\t\"a\": 4 }";
        let found = shown(&settings(text).unwrap().0, text);
        let found: Vec<_> = found.iter().map(|(key, value, at)| (&**key, &**value, &**at)).collect();
        assert_eq!(found, [("ü", "//剪", "\"//剪\""), ("a", "4", "4")]);
    }

    #[test]
    fn what_is_no_json() {
        for (text, line) in [
            ("{\"a\": }", 1),
            ("{\n\"a\": 1\n\"b\": 2}", 3),
            ("{} x", 1),
            ("{\"a\": 1,}", 1),
            ("[\"\\", 1),
            ("{\"a", 1),
            ("", 1),
        ] {
            assert_eq!(settings(text).unwrap_err().0, line, "{text}");
        }
        assert!(settings(&"[".repeat(100_000)).is_err());
    }
}
