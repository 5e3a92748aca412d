//! Pages with headings in a margin and paragraphs beside them.

use crate::output::printable;

/// Columns of the text.
const WIDTH: usize = 100;
/// Columns of its margin.
pub(crate) const MARGIN: usize = 10;

/// A heading in the margin, and paragraphs beside it.
pub(crate) fn section(text: &mut String, heading: &str, paragraphs: &[String]) {
    let mut heading = heading;
    for line in paragraphs.iter().flat_map(|paragraph| paragraph.lines()) {
        for part in wrapped(&printable(line)) {
            text.push_str(format!("{heading:<MARGIN$}{part}").trim_end());
            text.push('\n');
            heading = "";
        }
    }
}

/// A line broken at blanks; what goes on stands under the first word, past a number.
fn wrapped(line: &str) -> Vec<String> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let blanks = line.bytes().take_while(|byte| *byte == b' ').count();
    let indent = if digits > 0 && line[digits..].starts_with(". ") { digits + 2 } else { blanks };
    let mut lines = vec![line[..indent].to_owned()];
    let mut is_new = true;
    // Blanks between words stay: tables are aligned by them.
    for word in line[indent..].split(' ') {
        let last = lines.last_mut().expect("there is always a line");
        let blank = usize::from(!is_new);
        if !is_new && last.chars().count() + blank + word.chars().count() > WIDTH - MARGIN {
            lines.push(format!("{:indent$}{word}", ""));
        } else {
            last.push_str(&" ".repeat(blank));
            last.push_str(word);
        }
        is_new = false;
    }
    lines
}
