//! The unified diff of a change.

use std::fmt::Write;
use std::ops::Range;

use super::change::Edit;

/// Lines shown around a change.
const AROUND: usize = 3;

/// A part of a text with the edits that lie in it carried out.
pub(super) fn spliced(text: &str, range: Range<usize>, edits: &[Edit]) -> String {
    let mut result = String::with_capacity(range.len() + 64);
    let mut at = range.start;
    for edit in edits.iter().filter(|edit| edit.span.start >= range.start && edit.span.end <= range.end) {
        result.push_str(&text[at..edit.span.start]);
        result.push_str(&edit.new);
        at = edit.span.end;
    }
    result.push_str(&text[at..range.end]);
    result
}

/// One line of the old text with what takes its place.
struct Line<'a> {
    old: &'a str,
    new: Option<String>,
}

pub(super) fn diff(name: &str, text: &str, edits: &[Edit]) -> String {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.trim_end_matches('\n').len();
        let is_changed = edits.iter().any(|edit| edit.span.start >= start && edit.span.end <= end);
        lines
            .push(Line { old: line, new: is_changed.then(|| spliced(text, start..end, edits) + &line[end - start..]) });
        start += line.len();
    }
    let name = name.trim_start_matches('/');
    let mut result = format!("--- a/{name}\n+++ b/{name}\n");
    let changed: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].new.is_some()).collect();
    let mut shift = 0_isize;
    let mut next = 0;
    while next < changed.len() {
        let first = next;
        while next + 1 < changed.len() && changed[next + 1] - changed[next] <= 2 * AROUND {
            next += 1;
        }
        let from = changed[first].saturating_sub(AROUND);
        let to = (changed[next] + AROUND + 1).min(lines.len());
        next += 1;
        let mut body = String::new();
        let mut added = 0;
        for line in &lines[from..to] {
            added += hunk_line(&mut body, line);
        }
        let new_start = (from + 1).saturating_add_signed(shift);
        let count = to - from;
        let _ = writeln!(result, "@@ -{},{count} +{new_start},{} @@", from + 1, count + added);
        result.push_str(&body);
        shift += added as isize;
    }
    result
}

/// Writes one line into a hunk; how many lines it has become more.
fn hunk_line(body: &mut String, line: &Line<'_>) -> usize {
    let Some(new) = &line.new else {
        put(body, ' ', line.old);
        return 0;
    };
    // Something added behind a line leaves the line itself as it is.
    let kept = line.old.trim_end_matches(['\n', '\r']);
    if line.old.ends_with('\n')
        && let Some(added) = new.strip_prefix(kept).filter(|added| added.starts_with(['\n', '\r']))
    {
        put(body, ' ', line.old);
        let added = &added[added.find('\n').map_or(0, |newline| newline + 1)..];
        added.split_inclusive('\n').for_each(|line| put(body, '+', line));
        return added.split_inclusive('\n').count();
    }
    if let Some(added) = new.strip_suffix(line.old).filter(|added| added.ends_with('\n')) {
        added.split_inclusive('\n').for_each(|line| put(body, '+', line));
        put(body, ' ', line.old);
        return added.split_inclusive('\n').count();
    }
    put(body, '-', line.old);
    new.split_inclusive('\n').for_each(|line| put(body, '+', line));
    new.split_inclusive('\n').count() - 1
}

fn put(body: &mut String, sign: char, line: &str) {
    body.push(sign);
    body.push_str(line);
    if !line.ends_with('\n') {
        body.push_str("\n\\ No newline at end of file\n");
    }
}
