//! What the commands print, and how they end.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::path::Path;
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use lowtide_args::{with_heading, with_label};
pub(crate) use lowtide_core::printable;
use lowtide_core::{printable_json, printable_lines};
use lowtide_data::DataError;
use lowtide_settings::SettingsError;
use lowtide_tensorfile::TensorFileError;
use lowtide_watch::WatchError;
use serde::Serialize;

/// Where runs are unless `--out` says otherwise.
pub(crate) const RUNS: &str = "runs";

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

    /// What the system said of a file.
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::bad_input(format!("{}: {error}", path.display()), None)
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::bad_input(error.to_string(), error.hint().map(str::to_owned))
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self::bad_input(error.to_string(), error.hint())
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
    to_stderr(&format!("error: {}", failure.text));
    if let Some(hint) = failure.hint {
        to_stderr(&format!("hint: {hint}"));
    }
    ExitCode::from(failure.code)
}

/// Writes one line to standard error. Unlike `eprintln!`, does not panic where nobody reads any more.
pub(crate) fn to_stderr(line: &str) {
    // Colours are left out where no person reads, or one who wants none.
    let _ = writeln!(anstream::stderr().lock(), "{}", with_label(&printable(line)));
}

/// Writes to standard output, whatever a text from outside may have left in it. A text that must stay on its line goes
/// through [`printable`] before.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write_out(&printable_lines(text))
}

/// The same for a page with headings in a margin of so many columns, in colour where a person reads.
pub(crate) fn print_page(text: &str, margin: usize) -> Result<(), Failure> {
    let text = printable_lines(text);
    if AutoStream::choice(&io::stdout()) == ColorChoice::Never {
        return write_out(&text);
    }
    write_out(&text.lines().map(|line| format!("{}\n", with_heading(line, margin))).collect::<String>())
}

/// Writes JSON to standard output.
pub(crate) fn print_json(json: &str) -> Result<(), Failure> {
    write_out(&printable_json(json))
}

/// A reader that went away has seen enough, which is no error.
fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::bad_input(format!("cannot write to standard output: {error}"), None))
        }
        _ => Ok(()),
    }
}

/// What a fault of ours leaves on standard error, which may repeat what came from outside.
pub(crate) fn report_panic(info: &PanicHookInfo<'_>) {
    let trace = Backtrace::capture();
    let trace = if trace.status() == BacktraceStatus::Captured { format!("\n{trace}") } else { String::new() };
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(&format!("{info}{trace}")));
}

/// A value as JSON that people can read.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).expect("plain numbers and texts"))
}

/// A path on one line.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
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
