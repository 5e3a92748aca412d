//! The last look at what is about to be drawn.

use ratatui::buffer::Buffer;

use crate::output::printable;

/// What stands for a character that a terminal would not show as it is.
const STAND_IN: &str = "?";

/// Leaves nothing in any cell that steers the terminal, whichever part of the screen let it through.
pub(super) fn show_plainly(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol() != " " && printable(cell.symbol()) != cell.symbol() {
            cell.set_symbol(STAND_IN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let mut buffer = Buffer::with_lines(["a\u{202e}漢x█"]);
        buffer.content[4].set_symbol("\u{1b}[2J");
        show_plainly(&mut buffer);
        let symbols: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        assert!(symbols.iter().all(|symbol| !symbol.contains(['\u{1b}', '\u{202e}'])), "{symbols:?}");
        assert!(symbols.contains(&"漢") && symbols.contains(&"?"), "{symbols:?}");
    }
}
