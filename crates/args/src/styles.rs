//! The colours of help and errors. They are taken out where no person reads, by whoever prints.

use clap::builder::Styles;
use clap::builder::styling::{AnsiColor, Effects, Style};

const ERROR: Style = AnsiColor::Red.on_default().effects(Effects::BOLD);
const WARNING: Style = AnsiColor::Yellow.on_default().effects(Effects::BOLD);
const TITLE: Style = AnsiColor::Green.on_default().effects(Effects::BOLD);
const WORD: Style = AnsiColor::Cyan.on_default().effects(Effects::BOLD);
const ADDED: Style = AnsiColor::Green.on_default();
const TAKEN: Style = AnsiColor::Red.on_default();
const PLACE: Style = AnsiColor::Cyan.on_default();

/// What lines begin with that a person should not miss.
const LABELS: [(&str, Style); 4] = [("error:", ERROR), ("warning:", WARNING), ("hint:", WORD), ("note:", WORD)];

/// The colours of help.
pub const STYLES: Styles = Styles::styled()
    .header(TITLE)
    .usage(TITLE)
    .literal(WORD)
    .placeholder(PLACE)
    .error(ERROR)
    .valid(WORD)
    .invalid(WARNING);

/// A line for standard error, with its label in colour where it has one.
#[must_use]
pub fn with_label(line: &str) -> String {
    let labelled = LABELS.iter().find_map(|(label, style)| Some((label, style, line.strip_prefix(label)?)));
    match labelled {
        Some((label, style, rest)) => format!("{style}{label}{style:#}{rest}"),
        None => line.to_owned(),
    }
}

/// A line of a page with headings in a margin of so many columns: its heading in colour where it has one, and the lines of a
/// patch as programs for patches have them.
#[must_use]
pub fn with_heading(line: &str, margin: usize) -> String {
    let style = match line.as_bytes() {
        [b'+', ..] => ADDED,
        [b'-', ..] => TAKEN,
        _ => match line.split_at_checked(margin) {
            Some((head, rest)) if head.ends_with(' ') && !head.starts_with(' ') && !rest.starts_with(' ') => {
                let heading = head.trim_end();
                return format!("{WORD}{heading}{WORD:#}{}{rest}", &head[heading.len()..]);
            }
            _ => return line.to_owned(),
        },
    };
    format!("{style}{line}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_coloured_and_nothing_else() {
        assert_eq!(with_label("error: no"), "\x1b[1m\x1b[31merror:\x1b[0m no");
        assert_eq!(with_label("hint: an error: x"), "\x1b[1m\x1b[36mhint:\x1b[0m an error: x");
        assert_eq!(with_label("an error: no"), "an error: no");
    }

    #[test]
    fn headings_in_the_margin_are_coloured_and_patches() {
        assert_eq!(with_heading("do now    halve it", 10), "\x1b[1m\x1b[36mdo now\x1b[0m    halve it");
        for plain in ["          of before", "train.log, line 3: no", "what", "", "größer als", "1. a  b"] {
            assert_eq!(with_heading(plain, 10), plain);
        }
        assert_eq!(with_heading("+batch = 8", 10), "\x1b[32m+batch = 8\x1b[0m");
        assert_eq!(with_heading("-batch = 16", 10), "\x1b[31m-batch = 16\x1b[0m");
    }
}
