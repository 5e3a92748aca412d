//! Messages that no reading makes a report: they stand in comments, lists, manuals, the environment, or are hits of a search.
//!
//! A post that quotes its own error is about that error and is none of these; whether a program ended by what it wrote is asked
//! in `shown.rs`.
//!
//! It is about it unless a newer log goes on below the quotation.

use crate::article::defines;
use crate::level::CALM;
use crate::message::{clean, without_prefix};
use crate::phrase::{has_any, has_any_word};
use crate::talk::{ANCHORS, is_hypothetical};

/// Files that a search looks through and people show, not those of a compiled program's own remarks.
const TEXT_FILES: &str = "py log txt out err md rst yaml yml json jsonl toml cfg ini ipynb sh csv html";
/// What a program does with errors to come.
const PLANS: &str = "will retry retries retrying";
/// How far above a line a manual may begin, and how far a sentence that goes on in it.
const MANUAL: usize = 2 << 10;
/// What the parts of a manual are called.
const MANUALS: [&str; 9] = [
    "usage:",
    "faq",
    "frequently asked",
    "troubleshooting",
    "common errors",
    "q:",
    "known errors",
    "known issues",
    "exit codes",
];
/// Words of headings under which a document lists what was changed.
const CHANGES: &str = "changelog changed changes added fixed fixes removed deprecated security release releases";
/// What a manual says before an example.
const FORETOLD: [&str; 6] =
    ["you will see", "you'll see", "you may see", "you might see", "you will get", "you may get"];
/// How a page tells of what befalls people, and nobody of his own run.
const TYPICAL: [&str; 5] = ["typical ", "типичн", "típic", "typisch", "典型"];
/// Figures and names that a setting or a plan does not have.
const REPORTS: [&str; 4] = ["Tried to allocate", "Traceback", "GiB", "MiB"];
/// Words of further messages, where they begin.
const FURTHER: [&str; 5] = ["no available memory", "memoryerror", "oomkilled", "exit code 137", "is killed by signal"];
/// What only a report of an allocator has.
const FIGURES: [&str; 3] = ["total capac", "reserved in total", "memory in use"];

/// Whether a line, in which [`scan`](crate::scan) found a message, refers to errors in general or to one of another run: a hit of
/// a search, a comment beside a setting, a name in a list, a plan, the environment, a manual.
///
/// `before` is the text above the line.
#[must_use]
pub fn is_reference(line: &[u8], before: &[u8]) -> bool {
    let line = clean(line);
    let line = without_prefix(&line);
    let lower = line.to_ascii_lowercase();
    let at = ANCHORS.iter().chain(&FURTHER).filter_map(|anchor| lower.find(anchor)).min();
    is_search_hit(line.trim_start())
        || is_environment(line)
        || at.is_some_and(|at| is_comment(&line[..at]) || is_listed(line, at) || is_plan(line, &line[..at]))
        || is_item(line, before)
        || is_titled(line)
        || defines(&lower) && !has_any(line, &FIGURES)
        || at.is_some_and(|at| has_any(&line[..at].to_lowercase(), &TYPICAL)) && !has_any(line, &FIGURES)
        || is_change(line, before)
        || is_in_history(line, before)
        || is_cell(line)
        || is_of_test(line)
        || is_template(line)
        || is_in_diff(line, before)
        || is_in_manual(line, before)
}

/// `train.log:12:`, `notes.md:` right before the text: what a search puts before its hits.
fn is_search_hit(line: &str) -> bool {
    let Some((name, rest)) = line.split_once(':') else { return false };
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let is_text = extension.is_some_and(|extension| TEXT_FILES.split(' ').any(|known| known == extension));
    let (number, after) = rest.split_at(rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len());
    // Python's own warnings open like one: `train.py:12: UserWarning: ...`.
    let is_warning = after.split(' ').nth(1).is_some_and(|word| word.ends_with("Warning:"));
    is_text
        && !is_warning
        && !name.contains(char::is_whitespace)
        && (!number.is_empty() && after.starts_with(':') || number.is_empty() && !rest.starts_with(' '))
}

/// A shell that shows what it runs or what is set: `+ grep ...`, `export NAME=...`, `NAME="..."`.
fn is_environment(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with('+') && line.trim_start_matches('+').starts_with(' ') {
        return true;
    }
    let line = line.strip_prefix("export ").or_else(|| line.strip_prefix("declare -x ")).unwrap_or(line);
    let Some((name, _)) = line.split_once('=') else { return false };
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.len() > 2 && name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(is_name)
}

/// `max_num_seqs: 64  # 128 gives ...`: a comment behind something; a shell's prompt has no blank before its sign.
fn is_comment(head: &str) -> bool {
    [" # ", "\t# ", " // "].into_iter().any(|mark| head.find(mark).is_some_and(|at| !head[..at].trim().is_empty()))
}

/// `["torch.OutOfMemoryError","CUDA out of memory"]`: one of several names in quotes.
fn is_listed(line: &str, at: usize) -> bool {
    let (before, after) = line.split_at(at);
    let Some(open) = before.rfind('"').filter(|_| before.matches('"').count() % 2 == 1) else { return false };
    let Some(close) = after.find('"') else { return false };
    let (opens, closes) = (before[..open].trim_end(), after[close + 1..].trim_start());
    let is_short = open + 40 > at && close < 40;
    // A key of an object has a colon behind it, its value has one before; a list of one may be an exception's arguments.
    let is_within = opens.ends_with(['[', ',']) && closes.starts_with([']', ',']);
    is_short && is_within && (opens.ends_with(',') || closes.starts_with(',')) && opens.rfind('[') > opens.rfind(']')
}

/// A line of a patch: below its heading, or below two others that add.
fn is_in_diff(line: &str, before: &[u8]) -> bool {
    if !line.starts_with(['+', '-']) || line.starts_with("--") {
        return false;
    }
    let near = String::from_utf8_lossy(&before[before.len().saturating_sub(MANUAL)..]);
    // A logger sets its fields apart by what a patch takes lines away with.
    let adds = |line: &str| line.starts_with('+') && !line.starts_with("++");
    let is_heading =
        |line: &str| ["@@ ", "diff --git ", "+++ ", "```diff"].iter().any(|heading| line.starts_with(heading));
    near.lines().rev().map(without_prefix).any(is_heading)
        || adds(line) && near.lines().rev().take(2).map(without_prefix).filter(|line| adds(line)).count() == 2
}

/// `  - CUDA out of memory` below a name or another item: a list in YAML.
fn is_item(line: &str, before: &[u8]) -> bool {
    let Some(item) = line.trim().strip_prefix("- ") else { return false };
    let start = memchr::memrchr(b'\n', before.strip_suffix(b"\n").unwrap_or(before)).map_or(0, |newline| newline + 1);
    let above = String::from_utf8_lossy(&before[start..]);
    let above = without_prefix(above.trim_end()).trim();
    let is_name = !item.contains(|c: char| c.is_ascii_digit()) && item.len() < 40;
    is_name && (above.starts_with("- ") || above.ends_with(':') && !above.contains(' '))
}

/// `Title: CUDA out of memory`: what something is called.
fn is_titled(line: &str) -> bool {
    const LABELS: [&str; 9] =
        ["title", "subject", "keywords", "tags", "labels", "related", "see also", "closes", "question"];
    let Some((label, rest)) = line.split_once(':') else { return false };
    let label = label.trim_matches([' ', '-', '*', '#', '"']).to_ascii_lowercase();
    LABELS.contains(&&*label) && !has_any(rest, &FIGURES)
}

/// `- CUDA out of memory while evaluating (#12)` below `### Fixed`: a document of what was changed.
fn is_change(line: &str, before: &[u8]) -> bool {
    let is_listed = ["- ", "* ", "+ ", "\u{2022} "].iter().any(|mark| line.trim_start().starts_with(mark));
    if !is_listed || has_any(line, &FIGURES) {
        return false;
    }
    let near = String::from_utf8_lossy(&before[before.len().saturating_sub(MANUAL)..]);
    let mut above = near.lines().rev().map(|line| without_prefix(line).trim_start());
    let heading = above.find(|line| line.starts_with('#') || line.starts_with("**"));
    heading.is_some_and(|heading| has_any_word(heading, CHANGES) || names_version(heading))
}

/// `## v2.4.1 (2026-02-11)`, `## [2.4.1]`
fn names_version(heading: &str) -> bool {
    let name = heading.trim_start_matches(['#', '*', '[', ' ', 'v']);
    name.starts_with(|c: char| c.is_ascii_digit())
        && name.split([' ', ']']).next().is_some_and(|name| name.contains('.'))
}

/// `| 13B | 1024 | OOM (CUDA out of memory) |`: a result in a table of a document. Servers draw tables of what failed, too.
fn is_cell(line: &str) -> bool {
    let row = line.trim();
    let is_row = row.starts_with('|') && row.ends_with('|') && row.matches('|').count() > 3;
    is_row && !has_any(row, &FIGURES) && !has_any(row, &["rror", "ailed", "UNAVAILABLE", "Traceback"])
}

/// `tests/test_memory.py::test_out_of_memory_is_retried PASSED`, and what an assertion compares with.
fn is_of_test(line: &str) -> bool {
    let is_name = line.contains("::") && has_any(line, &[" PASSED", " SKIPPED", " XFAIL", " ... ok"]);
    // The summary has the outcome first.
    let is_summed = ["PASSED ", "SKIPPED [", "XFAIL ", "XPASS "].iter().any(|outcome| line.starts_with(outcome));
    is_name || is_summed || has_any(line, &["AssertionError: assert ", "assert '", "assert \""]) || is_expectation(line)
}

/// A line of a history of changes: the subject behind the short name of a commit (`a1b2c3d Fix ...`, `* a1b2c3d (tag) ...`), or the
/// indented message below `commit`, `Author:` and `Date:`.
fn is_in_history(line: &str, before: &[u8]) -> bool {
    let subject = line.trim_start_matches(['*', '|', '/', '\\', ' ']);
    let name = |subject: &str| subject.split(' ').next().unwrap_or_default().to_owned();
    let last = before.strip_suffix(b"\n").unwrap_or(before).rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let last = String::from_utf8_lossy(last);
    // A name of digits alone is one where the line above is of the history, too.
    let is_below = || is_commit(&name(&last)) || last.contains("git log") || last.contains("git shortlog");
    let is_number = |name: &str| (7..=10).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_digit());
    let name = name(subject);
    if (is_commit(&name) || is_number(&name) && is_below()) && name.len() < subject.len() {
        return true;
    }
    if !line.starts_with("    ") {
        return false;
    }
    let near = String::from_utf8_lossy(&before[before.len().saturating_sub(MANUAL)..]);
    let mut above = near.lines().rev().skip_while(|line| line.trim().is_empty() || line.starts_with("    "));
    above.next().is_some_and(|line| line.starts_with("Date: ") || line.starts_with("CommitDate: "))
}

/// A short or a whole name of a commit; a number alone is a process, and names of containers are longer.
fn is_commit(name: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    matches!(name.len(), 7..=10 | 40)
        && name.bytes().all(is_hex)
        && name.bytes().any(|byte| byte.is_ascii_digit())
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// `E        Regex: 'CUDA out of memory'`: what an error was to match, and did not.
fn is_expectation(line: &str) -> bool {
    let rest = line.strip_prefix("E ").map(str::trim_start);
    rest.is_some_and(|rest| ["Regex: ", "Expected regex: "].iter().any(|label| rest.starts_with(label)))
}

/// `summary: "{{ $labels.pod }} was OOMKilled"`, `reason="OOMKilled"} > 0`: rules about what may come.
fn is_template(line: &str) -> bool {
    let asks = line.contains("{{.State") || line.contains("{{ .State") || line.contains("{{json");
    !asks && (line.contains("{{ ") && line.contains(" }}") || has_any(line, &["=\"OOMKilled\"", "=~\"OOMKilled"]))
}

/// `INFO: will retry on CUDA out of memory`: below the level of errors, without figures, of what is to come.
fn is_plan(line: &str, head: &str) -> bool {
    has_any_word(head, CALM) && has_any_word(head, PLANS) && !has_any(line, &REPORTS)
}

fn is_in_manual(line: &str, before: &[u8]) -> bool {
    let near = String::from_utf8_lossy(&before[before.len().saturating_sub(MANUAL)..]);
    let trimmed = line.trim_start();
    if is_heading_of_manual(trimmed) {
        return true;
    }
    let is_quotation = trimmed.starts_with(['"', '`', '\'', '\u{201c}']);
    // A sentence to the reader that goes on in this line: `halve it when you see`.
    let last = near.lines().rev().map(without_prefix).find(|line| !line.trim().is_empty()).unwrap_or_default();
    if is_quotation && has_any_word(last, "you") && !last.trim_end().ends_with([':', '.']) && is_hypothetical(last) {
        return true;
    }
    let is_indented = line.starts_with(' ') || line.starts_with('\t');
    let lower = last.to_ascii_lowercase();
    if is_indented && FORETOLD.iter().any(|words| lower.contains(words)) {
        return true;
    }
    near.lines().rev().map(without_prefix).take_while(|line| !line.contains("Traceback (most recent")).any(|above| {
        let is_usage = above.trim_start().starts_with("usage:");
        (is_heading_of_manual(above.trim_start()) || shows_manual(above)) && (!is_usage || is_indented || is_quotation)
    })
}

/// `$ cat docs/FAQ.md`
fn shows_manual(line: &str) -> bool {
    let command = line.trim_start_matches(['$', '#', '%', ' ']);
    let is_shown = ["cat ", "less ", "more ", "head ", "tail "].iter().any(|name| command.starts_with(name));
    is_shown && [".md", ".rst"].iter().any(|extension| command.trim_end().ends_with(extension))
}

fn is_heading_of_manual(line: &str) -> bool {
    let line = line.trim_start_matches(['#', '*', '=', '-', ' ']).to_ascii_lowercase();
    MANUALS
        .iter()
        .any(|name| line.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_refers_to_errors_is_no_report() {
        for (before, line) in [
            (
                "",
                "old/train.log:812:RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)",
            ),
            ("", "notes.md:RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"),
            ("", "  max_num_seqs: 64        # 128 -> torch.OutOfMemoryError: CUDA out of memory on the 24 GB cards"),
            ("", "  max_model_len: 8192     # 16k does not fit (ValueError: No available memory for the cache blocks)"),
            ("", r#"{"policy":{"retry_on":["torch.OutOfMemoryError","CUDA out of memory","NCCL timeout"]}}"#),
            ("", r#"  "fatal": ["nan loss", "CUDA out of memory"],"#),
            ("@@ -1 +1,2 @@\n+# If it fails\n", "+``RuntimeError: CUDA out of memory`` with a traceback"),
            ("```diff\n a\n", "+### In case of `RuntimeError: CUDA out of memory` error"),
            ("restart_on:\n", "  - CUDA out of memory"),
            ("a\n  - NCCL timeout\n", "  - \"CUDA out of memory\""),
            ("", r#"{"level":"info","msg":"will retry on CUDA out of memory"}"#),
            ("", "[INFO] retrying on CUDA out of memory"),
            ("", "+ export ON_FAILURE='out of memory: restart'"),
            ("", "++ grep -q 'CUDA out of memory' train.log"),
            ("", "RETRY_PATTERN=CUDA out of memory error"),
            (
                "usage: t.py [-h]\n  --batch N  halve it when you see\n",
                "   \"CUDA out of memory. Tried to allocate 2.00 GiB\"",
            ),
            (
                "# FAQ\n\nI get this:\n",
                "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)",
            ),
            ("", "Title: CUDA out of memory when training on two cards"),
            ("### Fixed\n", "- RuntimeError: CUDA out of memory during checkpoint save (#12)"),
            (
                "## v2.4.1 (2026-02-11)\n\n- a\n",
                "* DataLoader worker (pid) is killed by signal: Killed on small machines",
            ),
            ("| model | result |\n| --- | --- |\n", "| 13B | 1 | 1024 | OOM (CUDA out of memory) |"),
            ("", "tests/test_oom.py::test_cuda_out_of_memory_is_retried PASSED   [ 12%]"),
            ("", "E       AssertionError: assert 'RuntimeError: CUDA out of memory' in ''"),
            ("", "E        Regex: 'CUDA out of memory'"),
            ("", "XFAIL tests/test_oom.py::test_large - torch.OutOfMemoryError: CUDA out of memory"),
            ("", "SKIPPED [1] tests/test_oom.py:12: would run out of memory"),
            ("$ git log --oneline\n", "d4e5f6a RuntimeError: CUDA out of memory when the checkpoint is read"),
            ("d4e5f6a Fix it\n", "7777777 RuntimeError: CUDA out of memory when the checkpoint is read"),
            ("", "* | 7f00b3c (origin/main) torch.cuda.OutOfMemoryError: CUDA out of memory"),
            (
                "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567\nAuthor: A <a@b.c>\nDate:   Mon Jan 1 10:00:00 2024 +0000\n\n    Fix\n\n",
                "    RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
            ),
            ("", "    memory: 16Gi          # below 12Gi the pod is OOMKilled while it loads"),
            ("", "    summary: \"{{ $labels.pod }} was OOMKilled (exit code 137)\""),
            ("", "  expr: kube_pod_status_reason{reason=\"OOMKilled\"} > 0"),
            ("", "OOMKilled (exit code 137) means a container exceeded its memory limit and the kernel killed it."),
            ("", "A typical case: the program ends with RuntimeError: CUDA out of memory, though little data goes in."),
            ("", "### Q: what is `RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB`?"),
        ] {
            assert!(is_reference(line.as_bytes(), before.as_bytes()), "{line}");
        }
    }

    #[test]
    fn what_people_post_of_their_own_is_a_report() {
        for (before, line) in [
            (
                "Here's my output:\n",
                "`CUDA out of memory. Tried to allocate 1.48 GiB (GPU 0; 8.00 GiB total capacity)`",
            ),
            (
                "If I use batch 8 I get\n",
                "\"cuda out of memory. tried to allocate 30.00 mib (gpu 0; 8.00 gib total capacity)\"",
            ),
            ("root@c0ffee:/x# python t.py\n", "> RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"),
            ("", "root@c0ffee:/x# python t.py: CUDA out of memory"),
            ("", "2025-03-01 INFO trainer: CUDA out of memory. Tried to allocate 2.00 GiB"),
            ("", r#"{"level": "error", "errors": "CUDA out of memory"}"#),
            (
                "",
                r#"{"level": "error", "args": ["CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.00 GiB"]}"#,
            ),
            ("usage: t.py [-h]\nstep 3\n", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
            (
                "",
                "lib/fsdp.py:2224: UserWarning: Failed to clone() tensor. Error: CUDA out of memory. Tried to allocate 2.00 MiB",
            ),
            ("", "FAILED tests/test_oom.py::test_large - torch.OutOfMemoryError: CUDA out of memory"),
            ("Date: today\nstep 3\n", "    RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"),
            ("", "1234567 RuntimeError: CUDA out of memory"),
            ("", "step #12: CUDA out of memory. Tried to allocate 20.00 MiB"),
            (
                "2026-01-02 03:04:05,1 - worker - INFO - a\n2026-01-02 03:04:05,1 - worker - INFO - b\n",
                "2026-01-02 03:04:05,1 - worker - WARNING - CUDA out of memory. Tried to allocate 20.00 MiB",
            ),
            ("## Error Details\n", "- **Exception Type:** torch.cuda.OutOfMemoryError"),
            ("+---+---+\n", "| net | 1 | UNAVAILABLE: Internal: unable to load: CUDA out of memory |"),
        ] {
            assert!(!is_reference(line.as_bytes(), before.as_bytes()), "{line}");
        }
    }
}
