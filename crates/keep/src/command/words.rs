//! Words of a command line, as shells cut and quote them.

use std::ffi::OsStr;

/// Cuts a text into words at blanks; quotes and backslashes work as in a shell, nothing is expanded.
///
/// # Errors
///
/// A quote that is not closed.
pub(crate) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        None => return Err(format!("a quote ({character}) is not closed")),
                        Some(end) if end == character => break,
                        Some('\\') if character == '"' => word.extend(characters.next()),
                        Some(inside) => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Words as one line that a shell would cut into the same.
#[must_use]
pub fn quoted(words: &[impl AsRef<OsStr>]) -> String {
    words.iter().map(|word| quoted_word(&word.as_ref().to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted_word(word: &str) -> String {
    let plain = |character: char| character.is_alphanumeric() || "-_=./,:+@%".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_shell_cuts() {
        let cases: [(&str, &[&str]); 6] = [
            ("", &[]),
            ("  a  b\t c ", &["a", "b", "c"]),
            (r#"--x='a b' --y="c \"d\"" e\ f"#, &["--x=a b", r#"--y=c "d""#, "e f"]),
            ("''", &[""]),
            (r"'a\b'", &[r"a\b"]),
            ("ünï", &["ünï"]),
        ];
        for (text, words) in cases {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        assert_eq!(split("a 'b").unwrap_err(), "a quote (') is not closed");
    }

    #[test]
    fn quoted_words_are_cut_into_the_same() {
        let words = ["python", "it's", "", "a b", "$HOME", "--x=1"];
        assert_eq!(split(&quoted(&words)).unwrap(), words);
    }
}
