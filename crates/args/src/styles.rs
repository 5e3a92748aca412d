//! The colours of help and errors. They are taken out where no person reads, by whoever prints.

use clap::builder::Styles;
use clap::builder::styling::{AnsiColor, Effects, Style};

const ERROR: Style = AnsiColor::Red.on_default().effects(Effects::BOLD);
const WARNING: Style = AnsiColor::Yellow.on_default().effects(Effects::BOLD);
const TITLE: Style = AnsiColor::Green.on_default().effects(Effects::BOLD);
const WORD: Style = AnsiColor::Cyan.on_default().effects(Effects::BOLD);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_coloured_and_nothing_else() {
        assert_eq!(with_label("error: no"), "\x1b[1m\x1b[31merror:\x1b[0m no");
        assert_eq!(with_label("hint: an error: x"), "\x1b[1m\x1b[36mhint:\x1b[0m an error: x");
        assert_eq!(with_label("an error: no"), "an error: no");
    }
}
