//! Errors that a program shows, told from errors of its own.
//!
//! Whoever asks what a log is about takes both: a post that quotes its error is about that error. Whoever asks what a program
//! ended by takes only its own.

use crate::level::{CALM, WARNINGS};
use crate::message::{clean, without_prefix};
use crate::phrase::has_any_word;
use crate::reference::is_reference;
use crate::talk::{ANCHORS, is_only_mentioned};

/// PyTorch's CPU allocator speaks to its reader by itself.
const ADDRESS: &str = "you tried to allocate";
/// Words by which a text speaks to its reader, or of what is to come.
const SPEECH: &str = "you your i'm i my will faq q tip tips usage example symptom symptoms troubleshooting";
/// Who tells the people of a job how it ended, in whole sentences.
const SCHEDULERS: [&str; 3] = ["slurmstepd", "srun: ", "=>> PBS"];
/// How an exception is named before its message.
const CLASSES: [&str; 2] = ["Error", "Exception"];
/// Built-in exceptions that are of something else than memory, whatever their message quotes. `ValueError` and
/// `AssertionError` are of memory too where they hand on a message as it is.
const OTHER_CLASSES: [&str; 20] = [
    "FileNotFoundError",
    "FileExistsError",
    "NotADirectoryError",
    "IsADirectoryError",
    "PermissionError",
    "KeyError",
    "IndexError",
    "AttributeError",
    "NameError",
    "UnboundLocalError",
    "TypeError",
    "ValueError",
    "AssertionError",
    "ModuleNotFoundError",
    "NotImplementedError",
    "SyntaxError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "ZeroDivisionError",
    "JSONDecodeError",
];
/// How a program names what was before it ran.
const OTHER_RUNS: [&str; 9] = [
    "previous run",
    "earlier run",
    "prior run",
    "last run",
    "old run",
    "previous log",
    "earlier log",
    "old log",
    "last night",
];
/// Words that stand before the anchor of a message that is handed on: `training failed: CUDA`.
const MOST_WORDS: usize = 4;
/// What a traceback begins with.
const HEADER: &[u8] = b"Traceback (most recent call last)";
/// How much is seen of the lines above.
const ABOVE: usize = 512;
/// A traceback stands no further above its error than this.
const TRACEBACK: usize = 16 << 10;

/// Whether a line, in which [`scan`](crate::scan) found a message, only shows it: a quotation, a hit of a search, a comment, a
/// note below the level of errors, a sentence to the reader, an indented example, an exception of another kind that quotes
/// it.
///
/// `before` is the text above the line.
#[must_use]
pub fn is_shown(line: &[u8], before: &[u8]) -> bool {
    let line = clean(line);
    let lower = line.to_ascii_lowercase();
    let at = anchor(&lower);
    // Messages without these words are of libraries, whose own words follow them.
    let head = &line[..at.unwrap_or(0)];
    line.trim_start().starts_with('>')
        || is_reference(line.as_bytes(), before)
        || head.contains("# ")
        || head.matches('`').count() % 2 == 1
        || (has_any_word(head, SPEECH) && !is_of_scheduler(&line))
        || is_below_error(head)
        || is_warning(head, before)
        || is_of_another_class(&line)
        || is_of_another_run(head, before)
        || is_example(&line, before)
        || at.is_some_and(|at| !names_class(head) && !is_of_scheduler(&line) && is_only_mentioned(&line, at, at))
}

/// Where the words begin around which a sentence is looked at.
fn anchor(lower: &str) -> Option<usize> {
    ANCHORS.iter().chain([&ADDRESS]).filter_map(|anchor| lower.find(anchor)).min()
}

/// Whether a logger says that this is no error: `INFO:`, `[info]`, `"level": "debug"`. An exception that is named counts more.
fn is_below_error(head: &str) -> bool {
    !names_class(head) && has_any_word(head, CALM)
}

/// Whether a logger says that this is a warning, from which a program goes on. One that hands on every line of another
/// program as a warning does so with the head of its traceback too.
fn is_warning(head: &str, before: &[u8]) -> bool {
    let near = &before[before.len().saturating_sub(TRACEBACK)..];
    let is_passed_on = || {
        let at = memchr::memmem::rfind(near, HEADER);
        let start = |at| memchr::memrchr(b'\n', &near[..at]).map_or(0, |newline| newline + 1);
        at.is_some_and(|at| has_any_word(&String::from_utf8_lossy(&near[start(at)..at]), WARNINGS))
    };
    has_any_word(head, WARNINGS) && !is_passed_on()
}

/// `FileNotFoundError: runs/CUDA out of memory/x.log`: the class says what it is, where the message is not handed on as it is.
fn is_of_another_class(line: &str) -> bool {
    let Some((class, message)) = without_prefix(line).split_once(": ") else { return false };
    let is_other = class.rsplit('.').next().is_some_and(|name| OTHER_CLASSES.contains(&name));
    let lower = message.to_ascii_lowercase();
    let Some(at) = anchor(&lower).filter(|_| is_other) else {
        return false;
    };
    let is_figure = |unit| message.contains(unit);
    let is_word = |word: &str| word.trim_end_matches(':').chars().all(|c| c.is_alphanumeric() || c == '.');
    let is_handed_on =
        message[..at].split_whitespace().count() <= MOST_WORDS && message[..at].split_whitespace().all(is_word);
    !is_handed_on && !["GiB", "MiB"].into_iter().any(is_figure)
}

/// `previous run ended with:` in the line, or above it or its traceback.
fn is_of_another_run(head: &str, before: &[u8]) -> bool {
    let near = &before[before.len().saturating_sub(TRACEBACK)..];
    let header = memchr::memmem::rfind(near, HEADER).map(|at| &near[..at]);
    // A traceback of the line: all that stands between them is indented.
    let is_within =
        |at: usize| near[at..].split(|byte| *byte == b'\n').skip(1).all(|line| line.is_empty() || line[0] == b' ');
    let above = header.filter(|above| is_within(above.len())).unwrap_or(near);
    let above = String::from_utf8_lossy(&above[above.len().saturating_sub(ABOVE)..]);
    let above = above.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let names = |text: &str| OTHER_RUNS.iter().any(|name| text.to_ascii_lowercase().contains(name));
    names(head) || above.trim_end().ends_with(':') && names(above)
}

fn is_of_scheduler(line: &str) -> bool {
    SCHEDULERS.iter().any(|name| line.starts_with(name))
}

fn names_class(head: &str) -> bool {
    CLASSES.iter().any(|class| head.contains(class))
}

/// An exception that is indented, where no traceback stands above it: Python writes its own at the margin.
fn is_example(line: &str, before: &[u8]) -> bool {
    let is_indented = line.starts_with("  ") || line.starts_with('\t');
    let near = &before[before.len().saturating_sub(TRACEBACK)..];
    is_indented && names_class(line) && memchr::memmem::find(near, HEADER).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n";

    #[test]
    fn what_is_shown_is_no_error_of_the_program() {
        for line in [
            r#"{"level":"info","msg":"will retry on CUDA out of memory"}"#,
            r#"{"time": "11:20", "level": "DEBUG", "msg": "on CUDA out of memory the batch is halved"}"#,
            "> RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB",
            "> > torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "old/train.log:812:RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)",
            "notes.md:RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "batch_size: 8  # 16 gives CUDA out of memory. Tried to allocate 2.00 GiB",
            "Q: I get RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. What can I do?",
            "  RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)",
            "If you see `CUDA out of memory. Tried to allocate 2.00 GiB`, lower --batch-size",
            "2025-03-01 11:20:01 INFO trainer: CUDA out of memory will be answered by half a batch",
            "[INFO] retrying on CUDA out of memory",
            "to avoid CUDA out of memory use --batch-size 4",
            "WARNING last night: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "2025-03-01 11:20:01 [WARN] trainer: CUDA out of memory. Tried to allocate 2.00 GiB, batch skipped",
            "FileNotFoundError: runs/oom-CUDA out of memory/x.log",
            "FileNotFoundError: [Errno 2] No such file or directory: 'CUDA out of memory.log'",
            "[rank0]: ValueError: OOM policy must be one of ['skip', 'raise: CUDA out of memory. Tried to allocate']",
            "KeyError: 'CUDA out of memory'",
        ] {
            assert!(is_shown(line.as_bytes(), b"starting\n"), "{line}");
        }
    }

    #[test]
    fn what_a_program_ends_by_is_its_own() {
        for line in [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB",
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
            "2025-03-01 11:20:01 ERROR train.py:88 CUDA out of memory. Tried to allocate 20.00 MiB",
            "Error during training: CUDA out of memory. Tried to allocate 20.00 MiB",
            r#"{"level": "error", "message": "CUDA out of memory. Tried to allocate 20.00 MiB"}"#,
            "train.py: error: CUDA out of memory",
            "main.cu:42: CUDA error: out of memory",
            "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)",
            "  what():  CUDA out of memory. Tried to allocate 20.00 MiB",
            "thread 'main' panicked at src/main.rs:3:5: out of memory",
            "ValueError: CUDA out of memory",
            "AssertionError: training failed: CUDA error: out of memory",
            "ValueError: step 3 of 'train' failed: CUDA out of memory. Tried to allocate 20.00 MiB",
            "OSError: [Errno 12] Cannot allocate memory",
            "INFO:root:failed with RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB",
            "/usr/bin/bash: line 1:  4242 Killed                  python train.py",
            "step #12: CUDA out of memory. Tried to allocate 20.00 MiB",
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried \
             to allocate 134217728 bytes. Error code 12 (Cannot allocate memory)",
        ] {
            assert!(!is_shown(line.as_bytes(), b"starting\n"), "{line}");
        }
        let indented = "    RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB";
        assert!(!is_shown(indented.as_bytes(), TRACEBACK.as_bytes()));
        // What another run ended by, and what this one did.
        let line = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB";
        assert!(is_shown(line, format!("previous run ended with:\n{TRACEBACK}").as_bytes()));
        assert!(is_shown(line, b"the old log has this:\n"));
        assert!(!is_shown(line, format!("previous run ended with:\n{TRACEBACK}ValueError: x\n{TRACEBACK}").as_bytes()));
        assert!(!is_shown(line, format!("going on from the previous run\n{TRACEBACK}").as_bytes()));
        // A launcher that hands on what its process wrote.
        let passed_on = b"WARNING:root:Traceback (most recent call last):\nWARNING:root:  File \"t.py\", line 3\n";
        assert!(!is_shown(b"WARNING:root:RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB", passed_on));
    }
}
