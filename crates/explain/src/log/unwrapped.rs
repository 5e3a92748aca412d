//! A post as it was before a terminal broke its lines at its width, in the middle of words.

/// A text without the breaks, and for each of its lines the number of the line it begins in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unwrapped {
    pub(crate) text: String,
    /// How sure it is that the lines were broken.
    pub(crate) evidence: Evidence,
    lines: Vec<u64>,
    /// Where lines were joined, in bytes of the text.
    joints: Vec<usize>,
}

/// What speaks for a break at a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It is one that terminals have by themselves, and lines reach it.
    Sure,
    /// No line is longer than it, and as many reach it as chance would not bring; they may have been broken at blanks.
    Many,
    /// Some lines of that length may be so by chance.
    Chance,
}

/// How many lines were joined, and how many of them look cut off where they end.
#[derive(Debug, Clone, Copy, Default)]
struct Joints {
    all: usize,
    cut: usize,
}

/// Terminals are this wide.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=300;
/// Widths that terminals have by themselves.
const USUAL: [usize; 5] = [80, 100, 120, 132, 160];
/// Lines that begin alike for so many characters have the same prefix.
const PREFIX: usize = 6;

impl Unwrapped {
    /// Joins lines that go to the very edge with those that follow; `None` where too few do.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let longest = text.lines().map(width_of).max().unwrap_or_default();
        if WIDTHS.contains(&longest) {
            let (joined, joints) = Self::at(text, longest);
            let is_usual = USUAL.contains(&longest) && joints.all > 0;
            let evidence = match joints {
                // A single line that ends where a line may end hides the error below it.
                Joints { all: 1, cut: 0 } if is_usual => Evidence::Chance,
                _ if is_usual => Evidence::Sure,
                Joints { all, cut } if all > 2 || all == 2 && cut == 2 => Evidence::Many,
                Joints { cut: 0, .. } => return None,
                _ => Evidence::Chance,
            };
            return Some(Self { evidence, ..joined });
        }
        // Around what was pasted from a terminal, people write lines as long as they like.
        let (joined, joints) =
            USUAL.into_iter().map(|width| Self::at(text, width)).max_by_key(|(_, joints)| joints.all)?;
        (joints.all >= 2).then_some(joined)
    }

    /// Joins lines of a width with those that follow.
    fn at(text: &str, width: usize) -> (Self, Joints) {
        let mut unwrapped = Self {
            text: String::with_capacity(text.len()),
            evidence: Evidence::Chance,
            lines: Vec::new(),
            joints: Vec::new(),
        };
        let (mut joints, mut goes_on, mut first) = (Joints::default(), false, "");
        let nexts = text.lines().skip(1).map(Some).chain([None]);
        for (number, (line, next)) in (1..).zip(text.lines().zip(nexts)) {
            if !goes_on {
                unwrapped.lines.push(number);
                first = line;
            }
            unwrapped.text.push_str(line);
            let starts_anew = |next: &str| next.is_empty() || begin_alike(line, next) || begin_alike(first, next);
            goes_on = width_of(line) == width && !is_drawn(line) && next.is_some_and(|next| !starts_anew(next));
            joints.all += usize::from(goes_on);
            joints.cut += usize::from(goes_on && next.is_some_and(|next| is_cut(line, next)));
            match goes_on {
                true => unwrapped.joints.push(unwrapped.text.len()),
                false => unwrapped.text.push('\n'),
            }
        }
        (unwrapped, joints)
    }

    /// The same for lines that were broken at blanks.
    pub(crate) fn with_blanks(&self) -> String {
        let mut whole = String::with_capacity(self.text.len() + self.joints.len());
        let mut from = 0;
        for joint in &self.joints {
            whole.push_str(&self.text[from..*joint]);
            whole.push(' ');
            from = *joint;
        }
        whole.push_str(&self.text[from..]);
        whole
    }

    /// The number, in the text as it was given, of a line of this one.
    pub(crate) fn line(&self, number: u64) -> u64 {
        let index = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        self.lines.get(index).copied().unwrap_or(number)
    }
}

fn width_of(line: &str) -> usize {
    line.chars().count()
}

/// What a prefix opens is a line of its own, however long the one above is.
fn begin_alike(line: &str, next: &str) -> bool {
    line.chars().take(PREFIX).eq(next.chars().take(PREFIX))
}

/// Whether a line seems to go on in the next: at a blank, or in a word.
fn is_cut(line: &str, next: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let is_part = |c: char| c.is_lowercase() || c.is_ascii_digit() || "_.,)]/".contains(c);
    line.ends_with(' ') || line.ends_with(is_word) && next.starts_with(is_part)
}

/// Whether a line ends as rulers, boxes and marks under code do, which are as wide as they were meant to be.
fn is_drawn(line: &str) -> bool {
    let mut last = line.chars().rev();
    let (Some(last), Some(before)) = (last.next(), last.next()) else { return false };
    // A bar of progress has its count behind its own.
    let is_row = last == '|' && line.matches('|').count() > 1 && !line.contains("%|");
    is_row || matches!(last, '│' | '╮' | '╯' | '┐' | '┘') || last == before && "=-_+.*~^#─━".contains(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_at_the_edge_are_joined() {
        let (edge, more) = ("x".repeat(80), "y".repeat(80));
        let unwrapped = Unwrapped::of(&format!("a\n{edge}\n{more}\nrest\nb\n")).unwrap();
        assert_eq!(unwrapped.text, format!("a\n{edge}{more}rest\nb\n"));
        assert_eq!(unwrapped.evidence, Evidence::Sure);
        assert_eq!([1, 2, 3, 4].map(|number| unwrapped.line(number)), [1, 2, 5, 4]);
        assert_eq!(Unwrapped::of(&format!("{}.\nrest\n", "x".repeat(87))), None);
        let chance = Unwrapped::of(&format!("{}\nrest\n", "x".repeat(87))).unwrap();
        assert_eq!(chance.evidence, Evidence::Chance);
        assert_eq!(Unwrapped::of(&format!("{edge}\n{edge}\n{edge}\n")), None);
        assert_eq!(Unwrapped::of("a\nb\n"), None);
        let words = Unwrapped::of(&format!("{}\n{}\nrest\n", "x".repeat(65), "y".repeat(65))).unwrap();
        assert_eq!(words.evidence, Evidence::Many);
        assert_eq!(words.with_blanks(), format!("{} {} rest\n", "x".repeat(65), "y".repeat(65)));
    }

    #[test]
    fn prose_around_a_terminal_is_longer_than_it() {
        let (edge, more, prose) = ("x".repeat(80), "y".repeat(80), "long ".repeat(99));
        let unwrapped = Unwrapped::of(&format!("{prose}\n{edge}\n{more}\nrest\n")).unwrap();
        assert_eq!(unwrapped.text, format!("{prose}\n{edge}{more}rest\n"));
        assert_eq!(unwrapped.evidence, Evidence::Chance);
    }

    #[test]
    fn rulers_are_as_long_as_they_are() {
        let ruler = "=".repeat(80);
        assert_eq!(Unwrapped::of(&format!("{ruler}\na\n{ruler}\nb\n{ruler}\nc\n")), None);
        let row = format!("| {}|{}|", "x".repeat(38), "y".repeat(38));
        assert_eq!(Unwrapped::of(&format!("{row}\n|{row}|\n{row}\nc\n")), None);
    }
}
