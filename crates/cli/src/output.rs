//! What the commands print, and how they end.

use std::io::{self, Write};
use std::process::ExitCode;

use lowtide_data::DataError;
use lowtide_tensorfile::TensorFileError;
use lowtide_watch::WatchError;
use serde::Serialize;

/// Bad input, or output that nobody can take.
pub(crate) const BAD_INPUT: u8 = 2;
/// A signal asked to end.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) hint: Option<String>,
    /// The exit code.
    pub(crate) code: u8,
}

impl Failure {
    /// Something that was given cannot be used.
    pub(crate) fn bad_input(text: String, hint: Option<String>) -> Self {
        Self { text, hint, code: BAD_INPUT }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::bad_input(error.to_string(), error.hint().map(str::to_owned))
    }
}

impl From<TensorFileError> for Failure {
    fn from(error: TensorFileError) -> Self {
        DataError::from(error).into()
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        Self::bad_input(error.to_string(), error.hint().map(str::to_owned))
    }
}

/// Prints an error once, with its hint, and gives the exit code.
pub(crate) fn report(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    let hint = failure.hint.map_or(String::new(), |hint| format!("\nhint: {}", printable(&hint)));
    // Unlike `eprintln!`, does not panic where nobody reads any more.
    let _ = writeln!(io::stderr().lock(), "error: {}{hint}", printable(&failure.text));
    ExitCode::from(failure.code)
}

/// Writes to standard output. A reader that went away has seen enough, which is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::bad_input(format!("cannot write to standard output: {error}"), None))
        }
        _ => Ok(()),
    }
}

/// A value as JSON that people can read.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).expect("plain numbers and texts"))
}

/// A text out of a file without what would steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Which side of its column a cell stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows of cells as lines with aligned columns; the last column is not padded.
pub(crate) fn aligned<const N: usize>(sides: [Side; N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = (0..N)
            .map(|column| match sides[column] {
                Side::Left => format!("{:width$}", row[column], width = widths[column]),
                Side::Right => format!("{:>width$}", row[column], width = widths[column]),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(printable("ünï\u{1b}[2Jx\n\u{85}"), "ünï\\u{1b}[2Jx\\n\\u{85}");
    }
}
