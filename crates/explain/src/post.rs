//! A short log, as people post it: explained as it is, and as it was before somebody broke its lines, put something before them,
//! or put them into objects of JSON.
//!
//! A post is explained as the log in it was: texts up to 64 KiB lose colours, entities and what every line has before
//! it (`explain/log/packaging.rs`), and lines that a terminal broke are joined (`explain/log/unwrapped.rs`): surely
//! where no line is longer than a usual width and some reach it, else only where more is read by it. A log whose lines
//! are JSON objects is read as the text they carry (`explain/log/carried.rs`), with the time, a level that tells lines
//! apart, errors and figures of progress beside it.

use crate::Explanation;
use crate::log::{CarriedText, Evidence, Unwrapped, readable, without_known_margin, without_shared_margin};

/// Explains a post by `explain`, which takes the text of a log.
///
/// What a logger wrote as objects, a collector may have put into objects of its own.
pub(crate) fn explain_post(post: &str, explain: &dyn Fn(&str) -> Explanation) -> Explanation {
    let post = readable(post);
    let Some(carried) = CarriedText::of(&post) else { return explain_lines(&post, explain) };
    let mut explanation = explain_post(&carried.text, explain);
    explanation.verdicts.iter_mut().for_each(|verdict| verdict.line = carried.line(verdict.line));
    if let Some(found) = &mut explanation.not_memory {
        found.line = carried.line(found.line);
    }
    match carried.is_single() {
        true => fuller(explain_lines(&post, explain), explanation),
        false => explanation,
    }
}

/// Explains a text of lines.
fn explain_lines(post: &str, explain: &dyn Fn(&str) -> Explanation) -> Explanation {
    if let Some(bare) = without_shared_margin(post) {
        return behind_margin(explain(post), explain_joined(&bare, explain));
    }
    // Lines that each have a mark before them were broken before it was put there, if they were.
    if let Some(bare) = without_known_margin(post) {
        let (explained, joined) = (explain(post), explain_joined(&bare, explain));
        return fuller(explained, joined);
    }
    explain_joined(post, &|whole| match without_shared_margin(whole) {
        Some(bare) => behind_margin(explain(whole), explain(&bare)),
        None => explain(whole),
    })
}

/// A margin tells of clocks and programs, so the text with it counts unless it hides what is behind it.
fn behind_margin(explained: Explanation, bare: Explanation) -> Explanation {
    if bare.verdicts.is_empty() || figures(&bare) > figures(&explained) { bare } else { explained }
}

/// The first, unless the second has more figures.
fn fuller(first: Explanation, second: Explanation) -> Explanation {
    if figures(&second) > figures(&first) { second } else { first }
}

/// Explains a text as it was before a terminal broke its lines.
fn explain_joined(text: &str, explain: &dyn Fn(&str) -> Explanation) -> Explanation {
    let Some(whole) = Unwrapped::of(text) else { return explain(text) };
    let mut joined = explain(&whole.text);
    if whole.evidence == Evidence::Many && joined.verdicts.is_empty() {
        joined = explain(&whole.with_blanks());
    }
    if whole.evidence == Evidence::Chance {
        // Lines of one length may be so by chance: then what was joined counts where it says more.
        let explained = explain(text);
        if figures(&joined) <= figures(&explained) {
            return explained;
        }
    }
    joined.verdicts.iter_mut().for_each(|verdict| verdict.line = whole.line(verdict.line));
    joined
}

/// How many figures the last event has; `None` where there is no event.
fn figures(explained: &Explanation) -> Option<usize> {
    let verdict = explained.verdicts.first()?;
    let figures = [
        verdict.tried_bytes,
        verdict.capacity_bytes,
        verdict.free_bytes,
        verdict.in_use_bytes,
        verdict.allocated_bytes,
        verdict.limit_bytes,
    ];
    Some(figures.iter().flatten().count())
}
