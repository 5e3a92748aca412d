//! A post as it was before a terminal broke its lines at its width, in the middle of words.

/// A text without the breaks, and for each of its lines the number of the line it begins in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unwrapped {
    pub(crate) text: String,
    lines: Vec<u64>,
}

/// Terminals are this wide.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=300;
/// Lines that begin alike for so many characters have the same prefix.
const PREFIX: usize = 6;
/// Longer texts are logs from files, which nobody breaks.
const LONGEST: usize = 64 << 10;

impl Unwrapped {
    /// Joins lines that go to the very edge with those that follow; `None` where fewer than two do.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let width = text.lines().map(|line| line.chars().count()).max().filter(|width| WIDTHS.contains(width))?;
        // What a prefix opens is a line of its own, however long the one above is.
        let is_broken = |line: &str, next: Option<&str>| {
            let starts_anew = |next: &str| line.chars().take(PREFIX).eq(next.chars().take(PREFIX));
            line.chars().count() == width && next.is_some_and(|next| !starts_anew(next))
        };
        let mut pairs = text.lines().zip(text.lines().skip(1));
        if pairs.by_ref().filter(|(line, next)| is_broken(line, Some(next))).count() < 2 {
            return None;
        }
        let mut unwrapped = Self { text: String::with_capacity(text.len()), lines: Vec::new() };
        let mut goes_on = false;
        let nexts = text.lines().skip(1).map(Some).chain([None]);
        for (number, (line, next)) in (1..).zip(text.lines().zip(nexts)) {
            if !goes_on {
                unwrapped.lines.push(number);
            }
            unwrapped.text.push_str(line);
            goes_on = is_broken(line, next);
            if !goes_on {
                unwrapped.text.push('\n');
            }
        }
        Some(unwrapped)
    }

    /// The number, in the text as it was given, of a line of this one.
    pub(crate) fn line(&self, number: u64) -> u64 {
        let index = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        self.lines.get(index).copied().unwrap_or(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_at_the_edge_are_joined() {
        let (edge, more) = ("x".repeat(80), "y".repeat(80));
        let unwrapped = Unwrapped::of(&format!("a\n{edge}\n{more}\nrest\nb\n")).unwrap();
        assert_eq!(unwrapped.text, format!("a\n{edge}{more}rest\nb\n"));
        assert_eq!([1, 2, 3, 4].map(|number| unwrapped.line(number)), [1, 2, 5, 4]);
        assert_eq!(Unwrapped::of(&format!("{edge}\nrest\n")), None);
        assert_eq!(Unwrapped::of(&format!("{edge}\n{edge}\n{edge}\n")), None);
        assert_eq!(Unwrapped::of("a\nb\n"), None);
    }
}
