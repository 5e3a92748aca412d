//! A post as it was before a terminal broke its lines at its width, in the middle of words.

/// A text without the breaks, and for each of its lines the number of the line it begins in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unwrapped {
    pub(crate) text: String,
    lines: Vec<u64>,
}

/// Terminals are this wide.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=300;
/// Longer texts are logs from files, which nobody breaks.
const LONGEST: usize = 64 << 10;

impl Unwrapped {
    /// Joins lines that go to the very edge with those that follow; `None` where fewer than two do.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let width = text.lines().map(|line| line.chars().count()).max().filter(|width| WIDTHS.contains(width))?;
        let is_full = |line: &str| line.chars().count() == width;
        if text.lines().filter(|line| is_full(line)).count() < 2 {
            return None;
        }
        let mut unwrapped = Self { text: String::with_capacity(text.len()), lines: Vec::new() };
        let mut goes_on = false;
        for (number, line) in (1..).zip(text.lines()) {
            if !goes_on {
                unwrapped.lines.push(number);
            }
            unwrapped.text.push_str(line);
            goes_on = is_full(line);
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
        let edge = "x".repeat(80);
        let unwrapped = Unwrapped::of(&format!("a\n{edge}\n{edge}\nrest\nb\n")).unwrap();
        assert_eq!(unwrapped.text, format!("a\n{edge}{edge}rest\nb\n"));
        assert_eq!([1, 2, 3, 4].map(|number| unwrapped.line(number)), [1, 2, 5, 4]);
        assert_eq!(Unwrapped::of(&format!("{edge}\nrest\n")), None);
        assert_eq!(Unwrapped::of("a\nb\n"), None);
    }
}
