//! What is told of a log, in words.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lowtide_core::printable_lines;
use lowtide_explain::{Account, Advice, Culprit, Explanation, NotMemory, Patch, Place, Verdict};

use super::args::ExplainArgs;
use super::patch_file::COMMAND_LINE;
use super::run_log::RunLog;
use crate::output::{Side, aligned, printable, shown};

/// Columns of the text, and of its margin.
const WIDTH: usize = 100;
const MARGIN: usize = 10;
/// How many of the earlier events are listed.
const LISTED: usize = 10;

/// The last event in full, and the earlier ones as a list or in full.
pub(super) fn told(args: &ExplainArgs, log: &RunLog, explained: &Explanation, written: Option<&str>) -> String {
    let name = match log.path == Path::new("-") {
        true => "the log".to_owned(),
        false => shown(&log.path),
    };
    let Some((last, earlier)) = explained.verdicts.split_first() else {
        return nothing(&name, explained.not_memory.as_ref());
    };
    let mut text = event(&name, last, written);
    if written.is_none() && last.patch.as_ref().is_some_and(|patch| is_younger(Path::new(&patch.file), &log.path)) {
        text.push_str("the file was changed after the log ended: it may have the patch already\n");
    }
    if earlier.is_empty() {
        return text;
    }
    let count = explained.events - 1;
    let least = if explained.has_more { "at least " } else { "" };
    let events = if count == 1 { "event" } else { "events" };
    text.push_str(&format!("\n{least}{count} earlier {events} in this log:\n"));
    if args.all {
        earlier.iter().for_each(|verdict| text.push_str(&format!("\n{}", event(&name, verdict, None))));
        return text;
    }
    for verdict in earlier.iter().take(LISTED) {
        text.push_str(&format!("  line {}: {}\n", verdict.line, verdict.cause.words()));
    }
    if earlier.len() > LISTED {
        text.push_str("  ...\n");
    }
    text.push_str(match earlier.len() as u64 == count {
        true => "  --all shows them in full\n",
        false => "  --all shows the last of them in full\n",
    });
    text
}

/// How much later a file must have been changed to be of another time than the log.
const LATER: Duration = Duration::from_secs(2);

/// Whether a file was changed after the log was.
fn is_younger(file: &Path, log: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    changed(file).zip(changed(log)).is_some_and(|(file, log)| file.duration_since(log).is_ok_and(|by| by > LATER))
}

fn nothing(name: &str, instead: Option<&NotMemory>) -> String {
    let mut text = format!("no out-of-memory error in {name}\n");
    if let Some(found) = instead {
        let line: String = found.text.chars().take(160).collect();
        text.push_str(&format!(
            "line {}: {}\n  what looks like one is {}\n",
            found.line,
            printable(&line),
            found.words()
        ));
    }
    text
}

/// One event: the cause first, then what it rests on, then what to do.
fn event(name: &str, verdict: &Verdict, written: Option<&str>) -> String {
    let mut text = format!("memory ran out at line {} of {name}{}\n\n", verdict.line, place(verdict));
    let mut cause = vec![cause(verdict)];
    cause.extend(verdict.contributing.iter().map(|cause| format!("also: {}", cause.part())));
    section(&mut text, "cause", &cause);
    section(&mut text, "evidence", &verdict.evidence);
    if let Some(culprit) = &verdict.culprit {
        section(&mut text, "culprit", &[named(culprit), culprit.how.clone()]);
    }
    if let Some(account) = &verdict.model {
        section(&mut text, "a step", &table(account));
    }
    let advice: Vec<String> =
        verdict.advice.iter().enumerate().map(|(index, advice)| numbered(index + 1, advice)).collect();
    section(&mut text, "advice", &advice);
    let remarks: Vec<String> = verdict.remarks.iter().map(|remark| remark.text.clone()).collect();
    section(&mut text, "besides", &remarks);
    if let Some(patch) = &verdict.patch {
        let number = verdict.advice.iter().position(|advice| advice.patch.as_ref() == Some(patch));
        text.push_str(&shown_patch(patch, number.map(|index| index + 1), written));
    }
    text
}

/// The cause, and how sure it is.
pub(super) fn cause(verdict: &Verdict) -> String {
    format!("{} ({:.0} % sure)", verdict.cause.words(), (verdict.certainty * 100.0).round())
}

/// The culprit with its shape and size, as far as they are known.
pub(super) fn named(culprit: &Culprit) -> String {
    let size = culprit.bytes.map_or(String::new(), |bytes| format!(" = {bytes}"));
    let shape: Vec<String> = culprit.shape.iter().map(u64::to_string).collect();
    let shape = match (shape.is_empty(), &culprit.dtype) {
        (true, _) => String::new(),
        (false, Some(dtype)) => format!(", {} in {dtype}", shape.join(" x ")),
        (false, None) => format!(", {}", shape.join(" x ")),
    };
    format!("{}{shape}{size}", culprit.name)
}

fn place(verdict: &Verdict) -> String {
    let mut text = match (verdict.place, verdict.device) {
        (Place::Device, Some(index)) => format!(": device {index}"),
        (Place::Device, None) => ": the device".to_owned(),
        (Place::Host, _) => ": the machine".to_owned(),
    };
    if let Some(phase) = verdict.phase {
        text.push_str(&format!(", in {phase}"));
    }
    match verdict.step {
        Some(step) => text.push_str(&format!(", after step {step}")),
        None if verdict.before_first_step => text.push_str(", before the first step"),
        None => {}
    }
    if let Some(time) = &verdict.time {
        text.push_str(&format!(", at {}", printable(time)));
    }
    text
}

/// A heading in the margin, and paragraphs beside it.
fn section(text: &mut String, heading: &str, paragraphs: &[String]) {
    let mut heading = heading;
    for line in paragraphs.iter().flat_map(|paragraph| paragraph.lines()) {
        for part in wrapped(&printable(line)) {
            text.push_str(format!("{heading:<MARGIN$}{part}").trim_end());
            text.push('\n');
            heading = "";
        }
    }
}

/// A line broken at blanks; what goes on stands under the first word, past a number.
fn wrapped(line: &str) -> Vec<String> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let blanks = line.bytes().take_while(|byte| *byte == b' ').count();
    let indent = if digits > 0 && line[digits..].starts_with(". ") { digits + 2 } else { blanks };
    let mut lines = vec![line[..indent].to_owned()];
    let mut is_new = true;
    // Blanks between words stay: tables are aligned by them.
    for word in line[indent..].split(' ') {
        let last = lines.last_mut().expect("there is always a line");
        let blank = usize::from(!is_new);
        if !is_new && last.chars().count() + blank + word.chars().count() > WIDTH - MARGIN {
            lines.push(format!("{:indent$}{word}", ""));
        } else {
            last.push_str(&" ".repeat(blank));
            last.push_str(word);
        }
        is_new = false;
    }
    lines
}

fn numbered(number: usize, advice: &Advice) -> String {
    let kept = [
        (advice.same_effective_batch, "effective batch"),
        (advice.same_model, "model"),
        (advice.same_numbers, "numbers"),
    ];
    let names = |wanted: bool| -> Vec<&str> {
        kept.iter().filter(|(same, _)| *same == wanted).map(|(_, name)| *name).collect()
    };
    let change = match names(false).as_slice() {
        [] => "same effective batch, model and numbers".to_owned(),
        changed => format!("changes {}", changed.join(", ")),
    };
    let peak = advice.expected_peak_bytes.map_or(String::new(), |peak| format!("expected peak {peak}; "));
    format!("{number}. {}\n   [{peak}{change}]", advice.text)
}

fn table(account: &Account) -> Vec<String> {
    let mut rows: Vec<[String; 3]> =
        account.rows.iter().map(|row| [row.name.to_owned(), row.bytes.to_string(), row.how.clone()]).collect();
    rows.push(["together".to_owned(), account.total_bytes.to_string(), "estimated".to_owned()]);
    aligned([Side::Left, Side::Right, Side::Left], &rows).lines().map(str::to_owned).collect()
}

fn shown_patch(patch: &Patch, advice: Option<usize>, written: Option<&str>) -> String {
    let state = match (written, patch.file.as_str()) {
        (Some(_), _) => "written",
        (None, COMMAND_LINE) => "type it so",
        (None, _) => "--write writes it",
    };
    let advice = advice.map_or(String::new(), |number| format!(", for advice {number}"));
    // The name stands at its head, once for each side.
    let diff = printable_lines(&patch.diff.replacen(&patch.file, &printable(&patch.file), 2));
    let note = match diff == patch.diff {
        true => "",
        false => "characters that a terminal would not show are written out above: only --write can apply this patch\n",
    };
    format!("\npatch of {}{advice} ({state})\n{diff}{note}", printable(&patch.file))
}
