//! What is told of a log, in words.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lowtide_args::ExplainArgs;
use lowtide_core::printable_lines;
use lowtide_explain::{Account, Advice, Explanation, NotMemory, Patch, Verdict};

use super::page::{headline, page};
use super::patch_file::COMMAND_LINE;
use super::run_log::RunLog;
use super::words::{also, cause, effect, held, holdings, named, place, possibilities, ranks};
use crate::output::{Side, aligned, printable, shown};
use crate::section::section;

/// How many of the earlier events are listed.
const LISTED: usize = 10;

/// The last event on a page or in full, and the earlier ones as a list or in full.
pub(super) fn told(args: &ExplainArgs, log: &RunLog, explained: &Explanation, written: Option<&str>) -> String {
    let name = match log.path == Path::new("-") {
        true => "the log".to_owned(),
        // Lines are counted in what its cells printed.
        false if log.path.extension().is_some_and(|extension| extension == "ipynb") => {
            format!("the outputs of {}", shown(&log.path))
        }
        false => shown(&log.path),
    };
    let Some((last, earlier)) = explained.verdicts.split_first() else {
        return nothing(&name, explained.not_memory.as_ref());
    };
    let mut text = match args.all {
        true => event(&name, last, written),
        false => page(&name, last, written),
    };
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
        text.push_str(&format!("  line {}: {}\n", verdict.line, verdict.cause_words()));
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

/// One event in full: what happened, the cause and all that it rests on, then all that can be done.
fn event(name: &str, verdict: &Verdict, written: Option<&str>) -> String {
    let mut text = format!("{}\n\n", headline(name, verdict));
    section(&mut text, "ranks", &ranks(verdict));
    let mut cause = vec![cause(verdict)];
    cause.extend(also(verdict).map(|cause| format!("also: {}", cause.part())));
    cause.extend(possibilities(verdict));
    section(&mut text, "cause", &cause);
    section(&mut text, "evidence", &verdict.evidence);
    section(&mut text, "memory", &holdings(verdict).into_iter().collect::<Vec<_>>());
    section(&mut text, "holds", &verdict.tensors.iter().map(held).collect::<Vec<_>>());
    if let Some(culprit) = &verdict.culprit {
        section(&mut text, "culprit", &[named(culprit), culprit.how.clone()]);
    }
    section(&mut text, "code", &verdict.code.as_ref().map(place).into_iter().collect::<Vec<_>>());
    if let Some(account) = &verdict.model {
        section(&mut text, "a step", &table(account));
    }
    let advice: Vec<String> =
        verdict.advice.iter().enumerate().map(|(index, advice)| numbered(index + 1, advice)).collect();
    section(&mut text, "advice", &advice);
    section(&mut text, "note", &verdict.notes);
    let remarks: Vec<String> = verdict.remarks.iter().map(|remark| remark.text.clone()).collect();
    section(&mut text, "besides", &remarks);
    if let Some(patch) = &verdict.patch {
        let number = verdict.advice.iter().position(|advice| advice.patch.as_ref() == Some(patch));
        text.push_str(&shown_patch(patch, number.map(|index| index + 1), written));
    }
    text
}

/// A piece of advice, and what it comes to.
pub(super) fn advice_lines(advice: &Advice) -> Vec<String> {
    let mut lines = vec![advice.text.clone()];
    lines.extend(effect(advice).map(|effect| format!("[{effect}]")));
    lines
}

fn numbered(number: usize, advice: &Advice) -> String {
    let effect = effect(advice).map_or(String::new(), |effect| format!("\n   [{effect}]"));
    format!("{number}. {}{effect}", advice.text)
}

fn table(account: &Account) -> Vec<String> {
    let mut rows: Vec<[String; 3]> =
        account.rows.iter().map(|row| [row.name.to_owned(), row.bytes.to_string(), row.how.clone()]).collect();
    let how = match account.is_whole {
        true => "estimated",
        false => "estimated; activations come on top: the log does not tell how long samples are",
    };
    rows.push(["together".to_owned(), account.total_bytes.to_string(), how.to_owned()]);
    aligned([Side::Left, Side::Right, Side::Left], &rows).lines().map(str::to_owned).collect()
}

pub(super) fn shown_patch(patch: &Patch, advice: Option<usize>, written: Option<&str>) -> String {
    let advice = advice.map_or(String::new(), |number| format!(", for advice {number}"));
    if patch.file == COMMAND_LINE {
        // Indented, so that no line of a command that has several looks like one of ours.
        let command: String = patch.patched().lines().map(|line| format!("  {}\n", printable(line))).collect();
        return format!("\ntype instead{advice}\n{command}");
    }
    let state = if written.is_some() { "written" } else { "--write writes it" };
    // The name stands at its head, once for each side.
    let diff = printable_lines(&patch.diff.replacen(&patch.file, &printable(&patch.file), 2));
    let note = match diff == patch.diff {
        true => "",
        false => "characters that a terminal would not show are written out above: only --write can apply this patch\n",
    };
    format!("\npatch of {}{advice} ({state})\n{diff}{note}", printable(&patch.file))
}
