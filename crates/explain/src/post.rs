//! A short log, as people post it: explained as it is, and as it was before somebody broke its lines, put something before them,
//! or put them into objects of JSON.
//!
//! A post is explained as the log in it was: texts up to 64 KiB lose colours, entities and what every line has before
//! it (`explain/log/packaging.rs`), and lines that a terminal broke are joined (`explain/log/unwrapped.rs`): surely
//! where no line is longer than a usual width and some reach it, else only where more is read by it. A log whose lines
//! are JSON objects is read as the text they carry (`explain/log/carried.rs`), with the time, a level that tells lines
//! apart, errors and figures of progress beside it. An error that stands in the title alone counts where somebody tells of
//! himself below it.

use lowtide_oom::{LookAlike, is_of_oneself, without_prefix};

use crate::Explanation;
use crate::log::{CarriedText, Evidence, Unwrapped, readable, without_known_margin, without_shared_margin};

/// Explains a post by `explain`, which takes the text of a log.
///
/// What a logger wrote as objects, a collector may have put into objects of its own.
pub(crate) fn explain_post(post: &str, explain: &dyn Fn(&str) -> Explanation) -> Explanation {
    let post = readable(post);
    let Some(carried) = CarriedText::of(&post) else {
        let explained = explain_lines(&post, explain);
        // What the text shows, or shows to be something else, counts before its title.
        let title = 1 + post.lines().take_while(|line| line.trim().is_empty()).count() as u64;
        let is_open =
            explained.not_memory.as_ref().is_none_or(|found| found.kind == LookAlike::Mentioned || found.line == title);
        let titled = || {
            let quoted = without_known_margin(&post).or_else(|| without_shared_margin(&post));
            let collected = || post.lines().map(|line| without_prefix(line).to_owned() + "\n").collect::<String>();
            let bare = without_title_mark(&quoted.unwrap_or_else(collected))?;
            Some(explain_lines(&bare, explain))
        };
        let titled = (explained.verdicts.is_empty() && is_open).then(titled).flatten();
        return titled.filter(|titled| !titled.verdicts.is_empty()).unwrap_or(explained);
    };
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

/// The post with its title as a line like any other, where somebody tells of himself below it: `# MemoryError`, `Title: Killed`.
///
/// A comment and the name of a page begin so, too.
fn without_title_mark(post: &str) -> Option<String> {
    let start = post.len() - post.trim_start().len();
    let title = post[start..].lines().next()?;
    let hashes = title.trim_start_matches('#');
    let bare = match hashes.len() < title.len() {
        true => hashes.strip_prefix(' ')?,
        false => title.strip_prefix("Title:")?,
    };
    let below = &post[start + title.len()..];
    // A title that holds an error may be all that was handed on; a comment names no class.
    let is_all = below.trim().is_empty() && bare.contains("Error: ");
    (is_all || names_amount(bare) || is_of_oneself(below))
        .then(|| format!("{}{}{below}", &post[..start], bare.trim_start()))
}

/// Whether a title has in it how much was asked for: that was copied out of an error.
fn names_amount(title: &str) -> bool {
    ["ried to allocate ", "nable to allocate ", "trying to allocate ", "allocating tensor with shape["]
        .iter()
        .filter_map(|words| title.split_once(words))
        .any(|(_, amount)| amount.starts_with(|c: char| c.is_ascii_digit()))
}

/// Explains a text of lines.
fn explain_lines(post: &str, explain: &dyn Fn(&str) -> Explanation) -> Explanation {
    if let Some(bare) = without_shared_margin(post) {
        return behind_margin(explain(post), explain_joined(&bare, explain));
    }
    // Lines that each have a mark before them were broken before it was put there, if they were.
    if let Some(bare) = without_known_margin(post) {
        let (explained, joined) = (explain(post), explain_joined(&bare, explain));
        return surer(explained, joined);
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

/// The first, unless the second has more figures, or as many and is surer.
fn surer(first: Explanation, second: Explanation) -> Explanation {
    if (figures(&second), certainty(&second)) > (figures(&first), certainty(&first)) { second } else { first }
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
        if (figures(&joined), certainty(&joined)) <= (figures(&explained), certainty(&explained)) {
            return explained;
        }
    }
    joined.verdicts.iter_mut().for_each(|verdict| verdict.line = whole.line(verdict.line));
    joined
}

/// How sure the cause of the last event is, in percent.
fn certainty(explained: &Explanation) -> u32 {
    explained.verdicts.first().map_or(0, |verdict| (verdict.certainty * 100.0) as u32)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_counts_where_somebody_tells_of_himself() {
        let title = "MemoryError: bad allocation";
        for mark in ["# ", "### ", "Title: "] {
            let post = format!("{mark}{title}\n\nI only follow the steps of the page.\n");
            let bare = without_title_mark(&post);
            assert_eq!(bare.as_deref().and_then(|post| post.lines().next()), Some(title), "{mark}");
            let question = format!("{mark}{title}\n\nDoes anybody know what to do?\n");
            assert!(without_title_mark(&question).is_some(), "{mark}");
            let page = format!("{mark}{title}\n\nWhat it means, and what to do about it.\n");
            assert_eq!(without_title_mark(&page), None, "{mark}");
        }
        let amount = "# Allocator ran out of memory trying to allocate 45.45GiB\n\npython train.py --batch 4\n";
        assert_eq!(without_title_mark(amount).as_deref(), Some(&amount[2..]));
        let alone = "# torch.OutOfMemoryError: CUDA out of memory when tuning a model of 7B on 24 GB\n";
        assert_eq!(without_title_mark(alone).as_deref(), Some(&alone[2..]));
        assert_eq!(without_title_mark("# out of memory below this size\n"), None);
        assert_eq!(without_title_mark("#!/bin/sh\nI am a script\n"), None);
        assert_eq!(without_title_mark("I have no title\n"), None);
    }
}
