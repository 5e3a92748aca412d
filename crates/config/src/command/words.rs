//! Words as a shell cuts and quotes them.

use std::ffi::OsStr;
use std::ops::Range;

/// A word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The word, without quotes.
    pub text: String,
    /// Where it stands in the text, in bytes, with its quotes.
    pub span: Range<usize>,
    /// Which command of the text it belongs to, from 0.
    pub(super) command: usize,
}

impl AsRef<OsStr> for Word {
    fn as_ref(&self) -> &OsStr {
        OsStr::new(&self.text)
    }
}

/// The words of a text, as a shell cuts them; comments and continued lines are read over. A quote that is not closed
/// goes to the end.
#[must_use]
pub fn words(text: &str) -> Vec<Word> {
    cut(text).0
}

/// The words of one line as a shell cuts them; nothing is expanded.
///
/// # Errors
///
/// The quote that is not closed.
pub fn split(text: &str) -> Result<Vec<String>, char> {
    let (words, open) = cut(text);
    open.map_or(Ok(words.into_iter().map(|word| word.text).collect()), Err)
}

/// The words of a text, and the quote that is open at its end.
fn cut(text: &str) -> (Vec<Word>, Option<char>) {
    let mut words: Vec<Word> = Vec::new();
    let (mut word, mut command, mut open): (Option<Word>, usize, Option<char>) = (None, 0, None);
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let new = || Word { text: String::new(), span: at..at, command };
        match character {
            '\\' if text[at + 1..].starts_with(['\n', '\r']) => {
                characters.next_if(|(_, next)| *next == '\r');
                characters.next_if(|(_, next)| *next == '\n');
            }
            '\\' => {
                word.get_or_insert_with(new).text.extend(characters.next().map(|(_, escaped)| escaped));
            }
            '\'' | '"' => {
                let here = word.get_or_insert_with(new);
                loop {
                    match characters.next() {
                        None => {
                            open = Some(character);
                            break;
                        }
                        Some((_, end)) if end == character => break,
                        Some((_, '\\')) if character == '"' => {
                            here.text.extend(characters.next().map(|(_, escaped)| escaped));
                        }
                        Some((_, inside)) => here.text.push(inside),
                    }
                }
            }
            '#' if word.is_none() => while characters.next_if(|(_, next)| *next != '\n').is_some() {},
            blank if blank.is_whitespace() => {
                if let Some(word) = word.take().map(|word| Word { span: word.span.start..at, ..word }) {
                    let is_between = is_operator(&word);
                    command += usize::from(is_between);
                    words.push(Word { command, ..word });
                    command += usize::from(is_between);
                }
                command += usize::from(blank == '\n');
            }
            other => word.get_or_insert_with(new).text.push(other),
        }
    }
    words.extend(word.map(|word| Word { span: word.span.start..text.len(), ..word }));
    (words, open)
}

/// `&&`, `|` and their like, between two commands.
fn is_operator(word: &Word) -> bool {
    !word.text.is_empty() && word.text.len() == word.span.len() && word.text.bytes().all(|byte| b"&|;".contains(&byte))
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
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("  a  b\t c ", &["a", "b", "c"]),
            (r#"--x='a b' --y="c \"d\"" e\ f"#, &["--x=a b", r#"--y=c "d""#, "e f"]),
            ("''", &[""]),
            (r"'a\b'", &[r"a\b"]),
            ("a\\\nb \\\r\n c", &["ab", "c"]),
            ("ünï", &["ünï"]),
        ];
        for (text, words) in cases {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        assert_eq!(split("a 'b"), Err('\''));
    }

    #[test]
    fn quoted_words_are_cut_into_the_same() {
        let words = ["python", "it's", "", "a b", "$HOME", "--x=1", "#", "&&"];
        assert_eq!(split(&quoted(&words)).unwrap(), words);
    }
}
