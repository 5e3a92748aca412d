//! Every out-of-memory message in a log, at the speed of a search for a few rare words.
//!
//! A search for the [needles](crate::needles) finds the lines worth reading; only those are cut out, cleaned and given to the families. Memory
//! is bounded: a line is looked at through a window of 4 KiB before the needle and 12 KiB after it, however long it is.

use std::ops::Range;

use memchr::memchr_iter;

use crate::line::{AFTER, line_around};
use crate::message::Message;
use crate::needles::{Needles, Searched};
use crate::{Oom, family};

const REST: usize = 8 << 10;
/// How much is seen of the line above.
const ABOVE: usize = 512;
/// A line longer than the window is gone through in steps that overlap by the longest phrase looked for.
const OVERLAP: usize = 256;

/// A message found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomHit {
    /// Number of its line, from 1; lines end with `\n`.
    pub line: usize,
    /// Where its line stands in the log, in bytes; what goes on in further lines is read but not counted here.
    pub range: Range<usize>,
    /// What it says.
    pub oom: Oom,
}

/// The messages of a log, in order; made by [`scan`].
pub struct Scan<'a> {
    log: &'a [u8],
    needles: &'static Needles,
    find: Find,
    position: usize,
    /// Where the text begins that was not read yet.
    floor: usize,
    /// What was searched in vain of the text from there on.
    searched: Searched,
    counted: usize,
    line: usize,
}

/// Finds every out-of-memory message in a log of any size and any bytes.
///
/// A traceback that repeats its error gives one hit for each repetition.
#[must_use]
pub fn scan(log: &[u8]) -> Scan<'_> {
    scan_by(log, Needles::find)
}

/// The same for a post, which is short: it is searched for rarer words too.
#[must_use]
pub fn scan_post(post: &[u8]) -> Scan<'_> {
    scan_by(post, Needles::find_in_post)
}

type Find = fn(&Needles, &[u8], usize) -> Option<(usize, &'static str)>;

fn scan_by(log: &[u8], find: Find) -> Scan<'_> {
    Scan {
        log,
        needles: Needles::get(),
        find,
        position: 0,
        floor: 0,
        searched: Searched::nothing(),
        counted: 0,
        line: 1,
    }
}

impl Iterator for Scan<'_> {
    type Item = OomHit;

    fn next(&mut self) -> Option<OomHit> {
        while let Some((at, needle)) = (self.find)(self.needles, self.log, self.position) {
            if !self.needles.is_worth(needle, &self.log[self.floor..], at - self.floor, &mut self.searched) {
                // Another needle may begin inside this one.
                self.position = at + 1;
                continue;
            }
            let line = line_around(&self.log[self.floor..], at - self.floor);
            let range = self.floor + line.start..self.floor + line.end;
            let was_cut = range.end == at.saturating_add(AFTER);
            self.position = if was_cut { range.end - OVERLAP } else { range.end };
            self.floor = self.position;
            self.searched = Searched::nothing();
            if let Some(oom) = read_line(self.log, &range) {
                self.position = range.end;
                self.floor = range.end;
                self.searched = Searched::nothing();
                return Some(OomHit { line: self.line_number(range.start), range, oom });
            }
        }
        self.position = self.log.len();
        None
    }
}

impl Scan<'_> {
    fn line_number(&mut self, at: usize) -> usize {
        self.line += memchr_iter(b'\n', &self.log[self.counted..at]).count();
        self.counted = at;
        self.line
    }
}

fn read_line(log: &[u8], range: &Range<usize>) -> Option<Oom> {
    let rest = &log[range.end..range.end.saturating_add(REST).min(log.len())];
    let above = &log[range.start.saturating_sub(ABOVE)..range.start];
    family::read(&Message::new(&log[range.clone()], without_line_end(rest)).below(above))
}

fn without_line_end(rest: &[u8]) -> &[u8] {
    let rest = rest.strip_prefix(b"\r").unwrap_or(rest);
    rest.strip_prefix(b"\n").unwrap_or(rest)
}
