//! Standard output and standard error, for readers that may go away, and bars on a terminal.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::OnceLock;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lowtide_args::with_label;
use lowtide_core::{SCHEMA, printable, printable_json, printable_lines};
use serde::Serialize;

/// The last line of a run, or of several, with `--json`.
pub(crate) fn print_summary(summary: &impl Serialize, folder: &Path) {
    print_json(&serde_json::json!({"schema": SCHEMA, "event": "summary", "summary": summary, "folder": folder}));
}

/// A line of JSON on standard output. A reader that went away is no reason to fail.
pub(crate) fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string(value).expect("plain numbers and texts");
    let _ = writeln!(std::io::stdout().lock(), "{}", printable_json(&text));
}

/// One line on standard output. A reader that went away is no reason to fail.
pub(crate) fn to_stdout(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{}", printable(line));
}

/// The rank that speaks, where it is not the first of several.
static SPEAKER: OnceLock<u32> = OnceLock::new();

/// Says from now on, before each line on standard error, which rank it is of, in PyTorch's form.
pub(crate) fn speak_as(rank: u32) {
    if rank > 0 {
        let _ = SPEAKER.set(rank);
    }
}

/// One line on standard error. Unlike `eprintln!`, does not panic where nobody reads any more.
pub(crate) fn to_stderr(line: &str) {
    let speaker = SPEAKER.get().map_or(String::new(), |rank| format!("[rank{rank}]: "));
    // Colours are left out where no person reads, or one who wants none.
    let _ = writeln!(anstream::stderr().lock(), "{speaker}{}", with_label(&printable(line)));
}

/// What a fault of ours leaves on standard error, which may repeat what came from outside.
pub(crate) fn report_panic(info: &PanicHookInfo<'_>) {
    let trace = Backtrace::capture();
    let trace = if trace.status() == BacktraceStatus::Captured { format!("\n{trace}") } else { String::new() };
    let _ = writeln!(std::io::stderr().lock(), "{}", printable_lines(&format!("{info}{trace}")));
}

/// A bar on standard error, of so many.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is right");
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
}
