//! One event on one page: what happened, why, what to do now.

use lowtide_explain::Verdict;

use super::text::{advice_lines, shown_patch};
use super::words::{
    also, cause, happening, held, holdings, moment, named, place, possibilities, ranks, sentence, without_size,
};
use crate::section::section;

/// How many sentences of evidence the page has.
const EVIDENCE: usize = 2;
/// How many of those who hold most the page has.
const HOLDERS: usize = 5;

/// The page of an event.
pub(super) fn page(name: &str, verdict: &Verdict, written: Option<&str>) -> String {
    let mut text = format!("{}\n\n", headline(name, verdict));
    let mut what = Vec::new();
    let asked = verdict.tried_bytes.map(|bytes| format!("It asked for {bytes}"));
    match (&verdict.culprit, asked) {
        (Some(culprit), Some(asked)) => what.push(format!("{asked}: {}", without_size(culprit))),
        (Some(culprit), None) => what.push(sentence(&named(culprit))),
        (None, asked) => what.extend(asked),
    }
    what.extend(verdict.code.as_ref().map(place));
    section(&mut text, "what", &what);
    section(&mut text, "ranks", &ranks(verdict));
    let mut why = vec![sentence(&cause(verdict))];
    why.extend(also(verdict).map(|cause| format!("Also: {}", cause.part())));
    // What was asked for stands above.
    let evidence = verdict.evidence.iter().filter(|text| !text.starts_with("asked for") || text.contains(';'));
    why.extend(evidence.take(EVIDENCE).map(|text| sentence(text)));
    why.extend(possibilities(verdict));
    section(&mut text, "why", &why);
    section(&mut text, "memory", &holdings(verdict).into_iter().collect::<Vec<_>>());
    section(&mut text, "holds", &verdict.tensors.iter().take(HOLDERS).map(held).collect::<Vec<_>>());
    let advice = &verdict.advice;
    section(&mut text, "do now", &advice.first().map(advice_lines).unwrap_or_default());
    section(&mut text, "or", &advice.get(1).map(advice_lines).unwrap_or_default());
    section(&mut text, "note", &verdict.notes);
    section(&mut text, "more", &rest(verdict).into_iter().collect::<Vec<_>>());
    if let Some(patch) = &verdict.patch {
        let index = advice.iter().position(|advice| advice.patch.as_ref() == Some(patch));
        // What is patched stands on the page, enough or not.
        if let Some(further) = index.filter(|index| *index > 1) {
            section(&mut text, &format!("advice {}", further + 1), &advice_lines(&advice[further]));
        }
        text.push_str(&shown_patch(patch, index.map(|index| index + 1), written));
    }
    text
}

/// Where and when memory ran out.
pub(super) fn headline(name: &str, verdict: &Verdict) -> String {
    let mut parts = vec![format!("{name}, line {}: {}", verdict.line, happening(verdict))];
    parts.extend(moment(verdict));
    parts.join(", ")
}

/// What the page leaves out, and how to see it; nothing where it leaves out nothing.
fn rest(verdict: &Verdict) -> Option<String> {
    let count = |number: usize, one: &str, many: &str| match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        many_of => Some(format!("{many_of} {many}")),
    };
    let parts: Vec<String> = [
        count(verdict.advice.len().saturating_sub(2), "more piece of advice", "more pieces of advice"),
        count(verdict.tensors.len().saturating_sub(HOLDERS), "more holder", "more holders"),
        verdict.model.as_ref().map(|_| "the arithmetic of a step".to_owned()),
        count(verdict.remarks.len(), "remark on the log", "remarks on the log"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| format!("--all shows {}", parts.join(", ")))
}
