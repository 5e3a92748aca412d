//! Lines of a file one after the other, in bounded memory, whatever is in it.

use std::io::{self, BufRead, BufReader, Read};

use lowtide_core::Seal;
use serde::de::IgnoredAny;

/// The longest line that is looked at; those that runs write are a thousand times shorter.
const LONGEST: u64 = 1 << 20;

/// Reads lines and judges each.
#[derive(Debug)]
pub struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// Where the next line begins.
    at: u64,
    /// Whether a line with a seal came: those after it have one too.
    is_sealed: bool,
}

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLine<'a> {
    /// Its text without its end; none where it is too long for any line of ours.
    pub text: Option<&'a [u8]>,
    /// Where it begins.
    pub start: u64,
    /// Where the next line begins.
    pub end: u64,
    /// Whether it has its end.
    pub is_ended: bool,
    /// What it is worth.
    pub state: LineState,
}

/// What a line is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineState {
    /// As it was written, or from a time when lines had no seal.
    Good,
    /// Not as it was written.
    Damaged,
    /// The last one, without its end: what a kill leaves.
    Torn,
}

impl<R: Read> LineReader<R> {
    /// The first line begins at `at`, where the reader stands.
    pub fn new(reader: R, at: u64) -> LineReader<R> {
        LineReader { reader: BufReader::with_capacity(1 << 18, reader), line: Vec::new(), at, is_sealed: false }
    }

    /// The next line; none at the end.
    pub fn read_line(&mut self) -> io::Result<Option<FileLine<'_>>> {
        let start = self.at;
        if self.read_piece()? == 0 {
            return Ok(None);
        }
        let is_long = self.line.len() as u64 > LONGEST;
        while !self.line.ends_with(b"\n") && self.read_piece()? > 0 {}
        let is_ended = self.line.ends_with(b"\n");
        let state = self.judge(is_long);
        let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(FileLine { text: (!is_long).then_some(text), start, end: self.at, is_ended, state }))
    }

    /// Reads to the end of the line, but not much more than the longest has; a piece that was there before goes. At the end
    /// of the file the last piece stays.
    fn read_piece(&mut self) -> io::Result<usize> {
        if self.reader.fill_buf()?.is_empty() {
            return Ok(0);
        }
        self.line.clear();
        let length = self.reader.by_ref().take(LONGEST + 1).read_until(b'\n', &mut self.line)?;
        self.at += length as u64;
        Ok(length)
    }

    fn judge(&mut self, is_long: bool) -> LineState {
        let Some(text) = self.line.strip_suffix(b"\n") else {
            // A byte too many behind a whole line: its end, changed.
            let is_whole = self.line.split_last().is_some_and(|(_, text)| Seal::of(text) == Seal::Whole);
            return if is_whole { LineState::Damaged } else { LineState::Torn };
        };
        let is_good = match Seal::of(text) {
            _ if is_long => false,
            Seal::Whole => true,
            Seal::Broken => false,
            Seal::Missing => !self.is_sealed && serde_json::from_slice::<IgnoredAny>(text).is_ok(),
        };
        self.is_sealed |= is_good && Seal::of(text) == Seal::Whole;
        if is_good { LineState::Good } else { LineState::Damaged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::sealed;

    fn states(text: &[u8]) -> Vec<(LineState, u64)> {
        let mut reader = LineReader::new(text, 0);
        let mut states = Vec::new();
        while let Some(line) = reader.read_line().unwrap() {
            states.push((line.state, line.end));
        }
        states
    }

    #[test]
    fn lines_are_judged_by_their_seals() {
        use LineState::{Damaged, Good, Torn};
        let line = |number: u32| sealed(format!("{{\"step\":{number}}}")) + "\n";
        let length = line(1).len() as u64;
        let text = line(1) + &line(2);
        assert_eq!(states(text.as_bytes()), [(Good, length), (Good, 2 * length)]);
        assert_eq!(states(&text.as_bytes()[..text.len() - 3]), [(Good, length), (Torn, 2 * length - 3)]);
        // Lines of older runs have no seal; behind one that has, each has one.
        let old = "{\"a\":1}\n";
        assert_eq!(states((old.to_owned() + &line(1)).as_bytes()), [(Good, 8), (Good, 8 + length)]);
        assert_eq!(states((line(1) + old).as_bytes()), [(Good, length), (Damaged, 8 + length)]);
        assert_eq!(states(b"no json\n"), [(Damaged, 8)]);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let text = [1, 2, 3].map(|number| sealed(format!("{{\"step\":{number}}}")) + "\n").concat().into_bytes();
        for bit in 0..8 * text.len() {
            let mut damaged = text.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(states(&damaged).iter().any(|(state, _)| *state == LineState::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn a_long_line_is_passed_over_without_being_held() {
        let mut text = vec![b'x'; 5 << 20];
        text.extend(b"\n{\"a\":1}\n");
        let length = text.len() as u64;
        assert_eq!(states(&text), [(LineState::Damaged, length - 8), (LineState::Good, length)]);
        let mut reader = LineReader::new(&text[..], 0);
        assert_eq!(reader.read_line().unwrap().unwrap().text, None);
        assert!(reader.line.capacity() < 4 << 20);
    }
}
