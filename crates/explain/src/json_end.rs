//! The end of a long log whose lines are JSON objects, read as the text that they carry.
//!
//! A post of such lines is read as that text from end to end (`post.rs`). A log of a gigabyte is searched as it is, for reading each
//! object would take ten times as long: messages are found inside of objects all the same, and so is a traceback beside them. What is
//! lost is what only a line of its own tells, such as `Killed`, and the stack of an error in a line that is longer than what is looked
//! at around a message. Both are at the end of a log, where a program ended; so its last objects are read once more.

use memchr::{memchr, memrchr};

use crate::log::{CarriedText, LONGEST_POST};
use crate::post::explain_post;
use crate::{Explanation, Verdict};

/// How long the last lines may be together where one is longer than all that is looked at.
const LONGEST_END: usize = 1 << 20;
/// How much above such a line is read with it.
const ABOVE: usize = 8 << 10;

/// Where the last objects of a log begin, at the start of a line: as much as a post has, and more where a single line is longer, with
/// some of the lines above it.
pub(crate) fn begin_of_end(log: &[u8]) -> Option<usize> {
    let begin = |at: usize| memrchr(b'\n', &log[..at]).map_or(0, |newline| newline + 1);
    let latest = log.len().saturating_sub(LONGEST_POST);
    let start = begin(latest);
    let is_long = latest - start > ABOVE;
    let start = if is_long { begin(start.saturating_sub(ABOVE)) } else { start };
    match log.len() - start <= LONGEST_END {
        true => Some(start),
        false => memchr(b'\n', &log[latest..]).map(|newline| latest + newline + 1),
    }
}

/// What the last objects of a log say; `None` where they are none. `line` is the number of lines above.
pub(crate) fn explain_end(end: &str, line: u64, explain: &dyn Fn(&str) -> Explanation) -> Option<Explanation> {
    let carried = CarriedText::of(end)?;
    let mut explanation = explain_post(&carried.text, explain);
    explanation.verdicts.iter_mut().for_each(|verdict| verdict.line = line + carried.line(verdict.line));
    Some(explanation)
}

/// The log as a whole, which knows its beginning, unless its end has an event that is missing there, or the stack of one.
pub(crate) fn with_end(whole: Explanation, end: Explanation) -> Explanation {
    let has_stack = |verdict: &Verdict| verdict.code.is_some() || verdict.phase.is_some();
    let is_missing = match (whole.verdicts.first(), end.verdicts.first()) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(known), Some(last)) => known.line == last.line && !has_stack(known) && has_stack(last),
    };
    if !is_missing {
        return whole;
    }
    let events = whole.events.max(end.events);
    let verdicts = end.verdicts.into_iter().take(1).chain(whole.verdicts.into_iter().skip(1)).collect();
    Explanation { verdicts, events, not_memory: None, ..whole }
}
