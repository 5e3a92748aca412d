//! The line around a place in a log, or as much of it as is ever looked at.

use std::ops::Range;

use memchr::{memchr2, memrchr2};

/// How much of a line is seen before a place in it.
const BEFORE: usize = 4 << 10;
/// How much of it is seen from there on.
pub(crate) const AFTER: usize = 4 << 10;

/// The line around a place; a carriage return ends one too, for progress bars live in one endless line.
pub(crate) fn line_around(text: &[u8], at: usize) -> Range<usize> {
    line_within(text, at, BEFORE, AFTER)
}

/// The same, but no further than so much before and behind a place.
pub(crate) fn line_within(text: &[u8], at: usize, before: usize, after: usize) -> Range<usize> {
    let earliest = at.saturating_sub(before);
    let latest = at.saturating_add(after).min(text.len());
    let start = memrchr2(b'\n', b'\r', &text[earliest..at]).map_or(earliest, |newline| earliest + newline + 1);
    let end = memchr2(b'\n', b'\r', &text[at..latest]).map_or(latest, |newline| at + newline);
    start..end
}
