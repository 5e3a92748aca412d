//! Tracebacks of Python: the error each of them is of, and whether a program may have ended by it.

use memchr::memmem;

use crate::line::{split_rank, without_colours, without_margin};

/// What every traceback begins with.
pub const TRACEBACK_HEADER: &str = "Traceback (most recent call last)";
/// How far above a traceback its reason is looked for, and how far below its error.
const ABOVE: usize = 1000;
const BELOW: usize = 64 << 10;
/// Errors of those who wait for a process that failed, set apart by bars.
const CONSEQUENCES: &str = "ChildFailedError|CalledProcessError|BrokenPipe|Connection|EOFError|DistBackendError|\
    DistNetworkError|DistStoreError|NCCL|Gloo|gloo|ProcessExitedException|ProcessRaisedException|SystemExit|\
    DataLoader worker|Pin memory thread|BrokenProcessPool|SignalException|ray.exceptions";
/// What stands above a traceback that does not end a program: it follows from the error before it, or is of a thread or
/// an object's end.
const ASIDES: &str = "During handling of the above|was the direct cause|Exception ignored in|Exception in thread|\
    Error in atexit|Error in sys.excepthook|Original Traceback|--- Logging error ---";

/// A traceback in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traceback {
    /// What it is in the course of a program.
    pub kind: TracebackKind,
    /// The line of its error, without the marks of ranks and loggers, where the text goes on so far.
    pub error: Option<String>,
}

/// What a traceback is in the course of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TracebackKind {
    /// An error that the program may have ended by.
    Error,
    /// An error of one who waits for a process that failed.
    Consequence,
    /// One that ends nothing: it follows from the error above it, or is of a thread or an object's end.
    Aside,
}

/// The tracebacks of a text, in order.
pub fn tracebacks(text: &[u8]) -> impl Iterator<Item = Traceback> {
    memmem::find_iter(text, TRACEBACK_HEADER).map(|at| {
        let above = String::from_utf8_lossy(&text[at.saturating_sub(ABOVE)..at]);
        let below = &text[at + TRACEBACK_HEADER.len()..];
        let mut above = above.rsplit('\n');
        let own = above.next().unwrap_or_default();
        let reason = above.find(|line| !split_rank(line).1.trim().is_empty()).unwrap_or_default();
        let error = error(own, &below[..below.len().min(BELOW)]);
        let is_in = |phrases: &str, text: &str| phrases.split('|').any(|phrase| text.contains(phrase));
        let kind = match &error {
            _ if is_in(ASIDES, own) || is_in(ASIDES, reason) => TracebackKind::Aside,
            Some(error) if is_in(CONSEQUENCES, error) => TracebackKind::Consequence,
            _ => TracebackKind::Error,
        };
        Traceback { kind, error }
    })
}

/// The first line below a header that is not indented or in a frame; lines of other ranks come in between.
fn error(own: &str, below: &[u8]) -> Option<String> {
    let (rank, margin) = split_rank(own);
    below.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let line = without_colours(line);
        let line = String::from_utf8_lossy(&line);
        let (mark, line) = split_rank(line.trim_end());
        let line = without_margin(line, margin).unwrap_or(line);
        let is_within = line.is_empty() || line.starts_with([' ', '\t', '│', '╭', '╰', '❱']);
        (mark == rank && !is_within).then(|| line.to_owned())
    })
}

/// A line in which a logger put a whole traceback into a JSON string, with its line ends.
#[must_use]
pub fn traceback_in_json(line: &str) -> Option<String> {
    (line.contains(TRACEBACK_HEADER) && line.contains("\\n")).then(|| line.replace("\\n", "\n").replace("\\\"", "\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_tracebacks() {
        use TracebackKind::{Aside, Consequence, Error};
        for (text, kind, error) in [
            (
                "Traceback (most recent call last):\n  File \"t.py\", line 9\nValueError: x\n",
                Error,
                Some("ValueError: x"),
            ),
            ("Traceback (most recent call last):\n  File \"t.py\", line 9\n", Error, None),
            (
                "\nDuring handling of the above exception, another exception occurred:\n\n\
                 Traceback (most recent call last):\n  File \"t.py\"\nValueError: x\n",
                Aside,
                Some("ValueError: x"),
            ),
            (
                "[rank1]: Traceback (most recent call last):\n[rank0]: step 5\n[rank1]:   File \"t.py\"\n\
                 [rank1]: torch.distributed.DistBackendError: NCCL error\n",
                Consequence,
                Some("torch.distributed.DistBackendError: NCCL error"),
            ),
            (
                "3: Traceback (most recent call last):\n3:   File \"t.py\"\n3: ConnectionResetError: x\n",
                Consequence,
                Some("ConnectionResetError: x"),
            ),
            (
                "[11:22:00,1][E] - Traceback (most recent call last):\n[11:22:00,15][E] -   File \"t.py\"\n\
                 [11:22:00,2][E] - ConnectionResetError: x\n",
                Consequence,
                Some("ConnectionResetError: x"),
            ),
            (
                "╭──── Traceback (most recent call last) ────╮\n│ /t.py:3 in <module> │\n╰────╯\n\
                 BrokenPipeError: [Errno 32] Broken pipe\n",
                Consequence,
                Some("BrokenPipeError: [Errno 32] Broken pipe"),
            ),
            (
                "Traceback (most recent call last):\n  File \x1b[35m\"t.py\"\x1b[0m\n\x1b[1;35mValueError\x1b[0m: x\n",
                Error,
                Some("ValueError: x"),
            ),
        ] {
            let found: Vec<_> = tracebacks(text.as_bytes()).collect();
            assert_eq!(found, [Traceback { kind, error: error.map(str::to_owned) }], "{text}");
        }
    }

    #[test]
    fn a_traceback_in_a_json_string() {
        let line = r#"{"exc": "Traceback (most recent call last):\n  File \"a.py\", line 3"}"#;
        assert!(traceback_in_json(line).is_some_and(|text| text.contains("\n  File \"a.py\", line 3")));
        assert_eq!(traceback_in_json("Traceback (most recent call last):"), None);
    }
}
