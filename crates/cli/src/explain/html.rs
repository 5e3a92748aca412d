//! An event as a page that opens from disk and asks for nothing: what happened, who holds what, what to do, the patch.

use std::fmt::Write;
use std::path::Path;

use lowtide_core::{Bytes, printable_lines};
use lowtide_explain::{HoldingKind, Verdict};
use lowtide_watch::COLOURS;

use super::page::headline;
use super::words::{cause, effect, happening, held, memory, moment, named, place, possibilities, ranks, sentence};
use crate::output::{printable, shown};

const STYLE: &str = include_str!("page.css");

/// The page of an event of a log.
pub(super) fn html(log: &Path, verdict: &Verdict, events: u64) -> String {
    let name = if log == Path::new("-") { "the log".to_owned() } else { shown(log) };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{COLOURS}{STYLE}</style>\n</head>\n\
         <body>\n<main>\n",
        escaped(&headline(&name, verdict))
    );
    let when = moment(verdict).join(", ");
    let line = format!("{name}, line {}", verdict.line);
    let line = if when.is_empty() { line } else { format!("{line}: {when}") };
    put(&mut page, format_args!("<p class=\"soft\">{}</p>", escaped(&line)));
    put(&mut page, format_args!("<h1>{}</h1>", escaped(&sentence(&happening(verdict)))));
    bar(&mut page, verdict);
    happened(&mut page, verdict);
    advice(&mut page, verdict);
    patch(&mut page, verdict);
    if events > 1 {
        put(&mut page, format_args!("<p class=\"soft\">The log has {events} such events; this is the last.</p>"));
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// The bar of who holds what, with what was asked for beyond it where that did not fit.
fn bar(page: &mut String, verdict: &Verdict) {
    let Some(capacity) = verdict.capacity_bytes.filter(|_| !verdict.holdings.is_empty()) else { return };
    let held = verdict.holdings.iter().fold(Bytes::ZERO, |sum, holding| sum.saturating_add(holding.bytes));
    let free = verdict.free_bytes.unwrap_or_default();
    let asked = verdict.tried_bytes.unwrap_or_default();
    // What was asked for begins where free memory begins, and may reach past the end of the device.
    let start = held.saturating_sub(free).get() as f64;
    let whole = (held.max(capacity).get() as f64).max(start + asked.get() as f64).max(1.0);
    let share = |bytes: f64| 100.0 * bytes / whole;
    page.push_str("<section class=\"card\">\n");
    put(
        page,
        format_args!("<h2>Who held the {} of {}</h2>", escaped(&capacity.to_string()), escaped(&memory(verdict))),
    );
    page.push_str("<div class=\"bar\" role=\"img\" aria-label=\"who holds what\">\n");
    for holding in &verdict.holdings {
        let title = format!("{}: {}", holding.by.words(), holding.bytes);
        let (class, width) = (class(holding.by), share(holding.bytes.get() as f64));
        put(page, format_args!("<i class=\"{class}\" style=\"width:{width:.3}%\" title=\"{}\"></i>", escaped(&title)));
    }
    page.push_str("</div>\n");
    if !asked.is_zero() {
        let (from, width) = (share(start), share(asked.get() as f64).max(0.4));
        put(
            page,
            format_args!(
                "<div class=\"asked\"><i style=\"left:{from:.3}%;width:{width:.3}%\"></i></div>\n<div class=\"end\"><i \
                 style=\"left:{:.3}%\"></i></div>",
                share(capacity.get() as f64)
            ),
        );
    }
    page.push_str("<ul class=\"legend\">\n");
    for holding in &verdict.holdings {
        let (class, words) = (class(holding.by), escaped(holding.by.words()));
        put(page, format_args!("<li><i class=\"{class}\"></i>{words} <b>{}</b></li>", holding.bytes));
    }
    if !asked.is_zero() {
        put(page, format_args!("<li><i class=\"request\"></i>asked for <b>{asked}</b></li>"));
        page.push_str("<li><i class=\"edge\"></i>where the memory ends</li>\n");
    }
    page.push_str("</ul>\n");
    if !verdict.holders.is_empty() {
        let who: Vec<String> = verdict
            .holders
            .iter()
            .map(|holder| {
                let name = holder.name.as_ref().map_or(String::new(), |name| format!(" {name}"));
                let used = holder.used_bytes.map_or(String::new(), |bytes| format!(", {bytes}"));
                format!("process {}{name}{used}", holder.pid)
            })
            .collect();
        put(page, format_args!("<p class=\"soft\">Others: {}</p>", escaped(&who.join("; "))));
    }
    page.push_str("</section>\n");
}

const fn class(kind: HoldingKind) -> &'static str {
    match kind {
        HoldingKind::Tensors | HoldingKind::Process => "tensors",
        HoldingKind::Idle => "idle",
        HoldingKind::OutsideAllocator => "outside",
        HoldingKind::Others => "others",
        HoldingKind::Free => "free",
        _ => "unknown",
    }
}

fn happened(page: &mut String, verdict: &Verdict) {
    page.push_str("<section class=\"card\">\n<h2>Why</h2>\n");
    put(page, format_args!("<p class=\"cause\">{}</p>", escaped(&sentence(&cause(verdict)))));
    let also = super::words::also(verdict).map(|cause| format!("Also: {}", cause.part()));
    let culprit = verdict.culprit.iter().map(|culprit| format!("It was for {}: {}", named(culprit), culprit.how));
    page.push_str("<ul>\n");
    let evidence = verdict.evidence.iter().cloned();
    for text in also.chain(ranks(verdict)).chain(evidence).chain(possibilities(verdict)).chain(culprit) {
        put(page, format_args!("<li>{}</li>", escaped(&sentence(&text))));
    }
    page.push_str("</ul>\n");
    if !verdict.tensors.is_empty() {
        page.push_str("<p class=\"soft\">Who held most</p>\n<ul>\n");
        for group in &verdict.tensors {
            put(page, format_args!("<li>{}</li>", escaped(&held(group))));
        }
        page.push_str("</ul>\n");
    }
    if let Some(code) = &verdict.code {
        put(page, format_args!("<p class=\"soft\">The stack ends in</p>\n<pre>{}</pre>", escaped(&place(code))));
    }
    put(page, format_args!("<p class=\"soft\">The message</p>\n<pre>{}</pre>", escaped_lines(&verdict.message)));
    page.push_str("</section>\n");
}

fn advice(page: &mut String, verdict: &Verdict) {
    page.push_str("<section class=\"card\">\n<h2>What to do, best first</h2>\n<ol>\n");
    for advice in &verdict.advice {
        let effect = effect(advice).map_or(String::new(), |effect| format!("<br><small>{}</small>", escaped(&effect)));
        put(page, format_args!("<li>{}{effect}</li>", escaped(&advice.text)));
    }
    page.push_str("</ol>\n");
    for note in &verdict.notes {
        put(page, format_args!("<p class=\"note\">{}</p>", escaped_lines(note)));
    }
    page.push_str("</section>\n");
}

fn patch(page: &mut String, verdict: &Verdict) {
    let Some(patch) = &verdict.patch else { return };
    put(page, format_args!("<section class=\"card\">\n<h2>Patch of {}</h2>\n<pre>", escaped(&patch.file)));
    for line in patch.diff.lines() {
        let class = match line.as_bytes().first() {
            Some(b'+') => "added",
            Some(b'-') => "gone",
            _ => "kept",
        };
        page.push_str(&format!("<span class=\"{class}\">{}</span>", escaped(line)));
    }
    page.push_str("</pre>\n</section>\n");
}

fn put(page: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(page, "{element}").expect("a string takes all text");
}

/// A text as HTML has it, on one line; what a screen would not show is written out.
fn escaped(text: &str) -> String {
    marked(&printable(text))
}

fn escaped_lines(text: &str) -> String {
    marked(&printable_lines(text))
}

fn marked(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
