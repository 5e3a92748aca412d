//! The copy of a command's output: whole in a file, its end in memory.

use std::fs::File;
use std::io::{self, Write};

use lowtide_log::BatchReport;

use crate::output::tail::{Stream, Tail};

/// A line that is longer than this is not held back to be written whole.
const LONGEST_LINE: usize = 64 << 10;

/// Trainers print their batch before they train; beyond this much of output it is not looked for.
const BEGINNING: u64 = 4 << 20;

/// Takes what passes, from all streams of a command, in the order in which it came.
#[derive(Debug)]
pub(crate) struct Transcript {
    file: Option<File>,
    /// Why the file is not whole, where it is not.
    pub(crate) refused: Option<io::Error>,
    /// The end of what came.
    pub(crate) tail: Tail,
    /// All that came, in bytes.
    pub(crate) bytes: u64,
    /// What was printed first of the batch of a step.
    pub(crate) batch_report: Option<BatchReport>,
}

impl Transcript {
    /// Without a file, the reason why there is none.
    pub(crate) fn new(file: io::Result<File>) -> Self {
        let (file, refused) = match file {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error)),
        };
        Self { file, refused, tail: Tail::default(), bytes: 0, batch_report: None }
    }

    /// Takes some bytes of a stream. A file that takes no more, as on a full disk, is given up; the command goes on.
    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(bytes)
        {
            self.refused = Some(error);
            self.file = None;
        }
        self.tail.take(stream, bytes);
        if self.batch_report.is_none() && self.bytes <= BEGINNING {
            self.batch_report = BatchReport::find(bytes);
        }
    }

    /// Adds a line to the file that the command did not write: what shows from outside how it ended.
    pub(crate) fn add(&mut self, line: &str) {
        let start = if self.tail.bytes.last().is_none_or(|last| *last == b'\n') { "" } else { "\n" };
        if let Some(file) = &mut self.file
            && let Err(error) = writeln!(file, "{start}{line}")
        {
            self.refused = Some(error);
        }
    }
}

/// Holds back the beginning of a line, so that lines of two streams do not cut each other.
#[derive(Debug, Default)]
pub(crate) struct WholeLines {
    begun: Vec<u8>,
}

impl WholeLines {
    /// Gives on what is whole: all up to the last line end, or everything where a line is very long.
    pub(crate) fn pass(&mut self, bytes: &[u8], mut to: impl FnMut(&[u8])) {
        let whole = match memchr::memrchr2(b'\n', b'\r', bytes) {
            Some(end) => end + 1,
            None if self.begun.len() + bytes.len() > LONGEST_LINE => bytes.len(),
            None => 0,
        };
        if whole > 0 {
            if !self.begun.is_empty() {
                to(&self.begun);
                self.begun.clear();
            }
            to(&bytes[..whole]);
        }
        let rest = &bytes[whole..];
        if rest.len() > LONGEST_LINE {
            to(rest);
        } else {
            self.begun.extend_from_slice(rest);
        }
    }

    /// Gives on what was held back.
    pub(crate) fn finish(self, mut to: impl FnMut(&[u8])) {
        if !self.begun.is_empty() {
            to(&self.begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_file_the_end_is_kept_and_the_reason() {
        let mut log = Transcript::new(Err(io::ErrorKind::StorageFull.into()));
        log.take(Stream::Output, b"words");
        assert_eq!((&*log.tail.bytes, log.bytes), (&b"words"[..], 5));
        assert_eq!(log.refused.as_ref().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
    }

    #[test]
    fn lines_are_not_cut() {
        let mut lines = WholeLines::default();
        let mut passed: Vec<String> = Vec::new();
        let mut to = |bytes: &[u8]| passed.push(String::from_utf8(bytes.to_vec()).unwrap());
        lines.pass(b"one\ntw", &mut to);
        lines.pass(b"o", &mut to);
        lines.pass(b" 10%\r", &mut to);
        lines.pass(b"end", &mut to);
        lines.finish(&mut to);
        assert_eq!(passed, ["one\n", "two", " 10%\r", "end"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20)) {
            let mut lines = WholeLines::default();
            let mut passed = Vec::new();
            for piece in &pieces {
                lines.pass(piece, |bytes| passed.extend_from_slice(bytes));
            }
            lines.finish(|bytes| passed.extend_from_slice(bytes));
            prop_assert_eq!(passed, pieces.concat());
        }
    }
}
