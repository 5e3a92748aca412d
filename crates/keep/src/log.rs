//! The copy of a command's output: whole in a file, its end in memory.

use std::fs::File;
use std::io::{self, Write};

/// What is kept of the end, for a look at the last words.
const TAIL: usize = 256 << 10;
/// A line that is longer than this is not held back to be written whole.
const LONGEST_LINE: usize = 64 << 10;

/// Takes what passes, from all streams of a command, in the order in which it came.
#[derive(Debug)]
pub(crate) struct Log {
    file: Option<File>,
    refused: Option<io::Error>,
    tail: Vec<u8>,
    bytes: u64,
}

impl Log {
    pub(crate) fn new(file: File) -> Self {
        Self { file: Some(file), refused: None, tail: Vec::new(), bytes: 0 }
    }

    /// Takes some bytes. A file that takes no more, as on a full disk, is given up; the command goes on.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(bytes)
        {
            self.refused = Some(error);
            self.file = None;
        }
        let last = &bytes[bytes.len().saturating_sub(TAIL)..];
        if self.tail.len() + last.len() > 2 * TAIL {
            let keep = TAIL - last.len().min(TAIL);
            self.tail.drain(..self.tail.len().saturating_sub(keep));
        }
        self.tail.extend_from_slice(last);
    }

    /// The end of what came, at least its last 256 KiB.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// All that came, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Why the file is not whole, where it is not.
    pub(crate) const fn refused(&self) -> Option<&io::Error> {
        self.refused.as_ref()
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
    fn the_tail_is_bounded_and_ends_as_the_output_does() {
        let mut log = Log::new(tempfile::tempfile().unwrap());
        let mut all = Vec::new();
        for size in [10, TAIL, 3, 2 * TAIL + 7, TAIL - 1, 1, TAIL / 2, TAIL / 2, TAIL] {
            let piece: Vec<u8> = (0..size).map(|index| (index * 7 + size) as u8).collect();
            log.take(&piece);
            all.extend(piece);
            assert!(log.tail().len() <= 2 * TAIL);
            assert!(log.tail().len() >= TAIL.min(all.len()), "{} of {}", log.tail().len(), all.len());
            assert!(all.ends_with(log.tail()));
        }
        assert_eq!(log.bytes(), all.len() as u64);
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
