//! Small searches in a message: the figure after a phrase, the figure before one.

use lowtide_core::Bytes;

use crate::figure::{Figure, figure_at};

/// The size that follows the first `phrase` that has one.
pub(crate) fn size_after(text: &str, phrase: &str) -> Option<Bytes> {
    figure_after(text, phrase)?.memory()
}

/// The size that follows the first of the phrases that has one.
pub(crate) fn size_after_any(text: &str, phrases: &[&str]) -> Option<Bytes> {
    phrases.iter().find_map(|phrase| size_after(text, phrase))
}

/// The figure that follows the first `phrase` that has one.
pub(crate) fn figure_after(text: &str, phrase: &str) -> Option<Figure> {
    text.match_indices(phrase).find_map(|(at, _)| {
        // Some write it in bold letters.
        let rest = &text[at + phrase.len()..];
        figure_at(rest.strip_prefix("**").unwrap_or(rest))
    })
}

/// The size right before the first `phrase` that has one, unit included.
pub(crate) fn size_before(text: &str, phrase: &str) -> Option<Bytes> {
    text.match_indices(phrase).find_map(|(at, _)| size_at_end(&text[..at]))
}

fn size_at_end(text: &str) -> Option<Bytes> {
    let text = text.trim_end();
    let last = last_word_start(text);
    let before_last = last_word_start(text[..last].trim_end());
    [last, before_last].into_iter().find_map(|start| {
        let candidate = text[start..].trim_start_matches(['(', '[', ',']);
        let figure = figure_at(candidate)?;
        let is_whole = figure.has_unit && figure.length == candidate.len();
        if is_whole { figure.memory() } else { None }
    })
}

fn last_word_start(text: &str) -> usize {
    text.rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |at| at + 1)
}

/// The whole number that follows the first `phrase` that has one.
pub(crate) fn number_after<T: TryFrom<u128>>(text: &str, phrase: &str) -> Option<T> {
    let figure = figure_after(text, phrase).filter(|figure| !figure.has_unit || figure.bytes == 0)?;
    T::try_from(figure.bytes).ok()
}

/// What stands between `open` and the next `close`.
pub(crate) fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(inner, _)| inner)
}

/// No more than so many bytes at the end of a text.
pub(crate) fn end_of(text: &str, most: usize) -> &str {
    let earliest = text.len().saturating_sub(most);
    let start = (earliest..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[start..]
}

/// Whether any of the phrases is in the text.
pub(crate) fn has_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// Whether any of the phrases is in the text, letter case aside. The phrases are given in lower case.
pub(crate) fn has_any_caseless(text: &str, phrases: &[&str]) -> bool {
    let lower = text.to_ascii_lowercase();
    has_any(&lower, phrases)
}

/// Whether any of the words, given with blanks between them, stands in the text, letter case aside.
pub(crate) fn has_any_word(text: &str, words: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'')
        .any(|word| words.split(' ').any(|known| known.eq_ignore_ascii_case(word)))
}

/// Whether `word` stands in the text with no letter, digit or underscore at either side.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Where a phrase begins in the text, not in the middle of a word: `out of memory`, and not `layout of memory`.
pub(crate) fn find_words(text: &str, phrase: &str) -> Option<usize> {
    text.match_indices(phrase).map(|(at, _)| at).find(|at| !text[..*at].ends_with(char::is_alphabetic))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `name` has this whole number behind it: `errno 12`, `errno: 12`, `(os error 12)`.
pub(crate) fn has_number_after(text: &str, name: &str, number: &str) -> bool {
    text.match_indices(name).any(|(at, _)| begins_with_number(&text[at + name.len()..], number))
}

/// Whether a text begins with this whole number, signs between a name and its value aside.
pub(crate) fn begins_with_number(text: &str, number: &str) -> bool {
    without_signs(text).strip_prefix(number).is_some_and(ends_number)
}

/// What stands between a name and its value is left out.
pub(crate) fn without_signs(text: &str) -> &str {
    text.trim_start_matches([' ', ':', '=', '"', '\'', '(', '[', '\t'])
}

fn ends_number(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_on_either_side_of_a_phrase() {
        let text = "(GPU 0; 11.00 GiB total capacity; There are 2.00G free, 0B reserved)";
        assert_eq!(size_before(text, " total capac"), Some(Bytes(11 << 30)));
        assert_eq!(size_before(text, " free"), Some(Bytes(2 << 30)));
        assert_eq!(size_before(text, " reserved"), Some(Bytes(0)));
        assert_eq!(size_before(text, " lost"), None);
        assert_eq!(number_after::<u32>(text, "GPU "), Some(0));
    }

    #[test]
    fn the_end_of_a_text_begins_with_a_letter() {
        assert_eq!((end_of("über", 4), end_of("aüb", 2), end_of("", 3)), ("ber", "b", ""));
    }

    #[test]
    fn words_end_where_letters_end() {
        assert!(has_word("exit code 137.", "137"));
        assert!(!has_word("exit code 1370", "137"));
    }

    #[test]
    fn numbers_end_where_digits_end() {
        for text in ["errno 12", "[errno: 12]", "errno = 12, x", "(errno=12)", "errno 12."] {
            assert!(has_number_after(text, "errno", "12"), "{text}");
        }
        for text in ["errno 123", "errno 12.5", "errno 12th", "12 errno", "errno"] {
            assert!(!has_number_after(text, "errno", "12"), "{text}");
        }
    }
}
