//! The bare words, when no family knows the text: a report only where nothing around makes it talk.

use crate::figure::figure_at;
use crate::look_alike::names_other_errno;
use crate::message::{Message, without_prefix};
use crate::names::{is_name_of_errno, is_only_named};
use crate::phrase::{find_words, has_any, has_any_caseless, size_after_any};
use crate::talk::{is_only_mentioned, is_prose, is_within_talk, tells_of_oneself};
use crate::{Certainty, Engine, Oom, Place, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    // A notebook names the error above its stack, and again, with its message, below.
    if line.contains("Traceback (most recent call last)") {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    if let Some(oom) = refused(line, &lower) {
        return Some(oom);
    }
    let find = |phrase: &str| if phrase == NAME { lower.find(phrase) } else { find_words(&lower, phrase) };
    let (at, phrase) = PHRASES.into_iter().find_map(|phrase| Some((find(phrase)?, phrase)))?;
    // `[CUDA ERROR] at file train.cu:693:` and the words for it in a line of their own.
    let above = message.above();
    let opens = above.trim_end().ends_with(':') && has_any(&above, &["CUDA ERROR", "CUDA error", "CUDA Error"]);
    if opens && lower.trim_end().ends_with(phrase) {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::device(Engine::Cuda, Source::Runtime) });
    }
    let end = at + phrase.len();
    let end = ["error", "exception"]
        .iter()
        .find(|class| lower[end..].starts_with(*class))
        .map_or(end, |class| end + class.len());
    let is_talk = is_only_mentioned(line, at, end)
        || phrase == NAME && is_only_named(line, at, end)
        || is_within_talk(&message.above(), line, at)
        || is_name_of_errno(&message.above())
        || is_name(&lower, at, end)
        || is_code(line, at, end)
        || is_prose(&lower[..at]);
    if is_talk || !reports(&lower) {
        return None;
    }
    Some(Oom {
        place: if on_device(line) { Place::Device } else { Place::Host },
        certainty: Certainty::Possible,
        requested: size_after_any(message.body(), REQUESTS),
        ..Oom::host(Engine::Unknown, Source::Heap)
    })
}

/// What stands before the size that was asked for.
const REQUESTS: &[&str] =
    &["allocate ", "allocating ", "allocation of ", "large allocation ", "allocate: ", "equested: ", "of size "];
const PHRASES: [&str; 4] = ["out of memory", "out-of-memory", NAME, "insufficient memory"];
/// What classes and statuses are called.
const NAME: &str = "outofmemory";

/// `fail to allocate memory 100663296 bytes!!`: a program of its own that tells how much it was refused.
fn refused(line: &str, lower: &str) -> Option<Oom> {
    let words =
        ["fail to allocate", "failed to allocate", "could not allocate", "unable to allocate", "cannot allocate"];
    let (at, word) = words.into_iter().find_map(|word| Some((lower.find(word)?, word)))?;
    let rest = &lower[at + word.len()..];
    let rest = rest.trim_start().strip_prefix("memory").unwrap_or(rest);
    let figure = figure_at(rest.trim_start_matches([' ', ':', '(', 'o', 'f']))?;
    // What a program did instead is no end of it.
    let goes_on = has_any(lower, &["falling back", "fallback", "instead", "retry", "pinned"]);
    let is_other = names_other_errno(lower) || has_any(rest, &["of disk", "disk space"]);
    let is_only_mentioned = is_only_mentioned(line, at, at + word.len());
    (figure.has_unit && !goes_on && !is_other && !is_only_mentioned).then(|| Oom {
        place: if on_device(line) { Place::Device } else { Place::Host },
        certainty: Certainty::Possible,
        requested: figure.memory(),
        ..Oom::host(Engine::Unknown, Source::Heap)
    })
}

fn on_device(line: &str) -> bool {
    has_any_caseless(
        line,
        &[
            "cuda",
            "gpu",
            "hip ",
            "rocm",
            "device",
            "vram",
            "runtimeerror: out of memory",
            "npu",
            "tpu",
            "musa",
            "xpu",
            "mlu ",
            "hpu ",
            "sdaa",
            "hbm",
            "dram buffer",
            "nvenc",
            "nvdec",
            "cuvid",
            "webgl",
            "d3d",
            "vulkan",
            // Sources that only a device's compiler takes.
            ".cuh",
            ".cu:",
            ".cu(",
        ],
    ) || line.trim_end().ends_with(".cu")
}

/// Whether the words are an identifier in a sentence, written as code: ``converted to `io::ErrorKind::OutOfMemory` ``.
fn is_code(line: &str, at: usize, end: usize) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
    let (before, after) = (line[..at].trim_end_matches(is_part), line[end..].trim_start_matches(is_part));
    before.ends_with('`') && after.starts_with('`') && before.len() > 1 && !tells_of_oneself(before)
}

/// Whether the words are part of a longer name, such as a setting, a file or a class; a class may open a message of its own.
fn is_name(lower: &str, at: usize, end: usize) -> bool {
    let joins = |c: char| c == '_' || c == '/' || c == '-' || c == '=';
    let is_letter = |c: char| c.is_alphabetic();
    let (before, after) = (&lower[..at], &lower[end..]);
    let is_class = lower[at..end].starts_with(NAME);
    is_class
        && (before.ends_with(is_letter) || after.starts_with(is_letter))
        && !after.starts_with(": ")
        && (!is_raised(before) || after.starts_with(is_letter))
        || before.ends_with(joins)
        || after.starts_with(joins)
        || after.starts_with(".py")
        || after.starts_with(".md")
}

/// `Error: Gpu`, `Unhandled Hip`: a class with the word for what it is right before it.
fn is_raised(before: &str) -> bool {
    let head = before.trim_end_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':')).trim_end();
    let head = head.trim_end_matches(':');
    ["error", "unhandled", "uncaught", "exception"].iter().any(|word| head.ends_with(word))
}

/// Whether the line sounds like something that happened.
fn reports(lower: &str) -> bool {
    let trimmed = without_prefix(lower).trim();
    // The name of the class is no word for what happened.
    let rest = lower.replace("outofmemoryerror", "");
    PHRASES.iter().any(|phrase| trimmed.starts_with(phrase) || is_of_named_device(trimmed, phrase))
        || has_any(&rest, HAPPENED)
}

/// `NPU out of memory`: how the allocators of PyTorch begin, whatever was cut off behind it.
fn is_of_named_device(text: &str, phrase: &str) -> bool {
    text.split_once(phrase).is_some_and(|(head, _)| DEVICES.contains(&head.trim_end()))
}

const DEVICES: [&str; 8] = ["npu", "musa", "xpu", "mlu", "gpu", "tpu", "hpu", "sdaa"];

const HAPPENED: &[&str] = &[
    "error",
    "fatal",
    "critical",
    "fail",
    "ran out",
    "went out",
    "exception",
    "killed",
    "abort",
    "panic",
    "terminat",
    "warning: ran",
    "crash",
    "caught",
    "skipping",
    ": out of memory",
    "got oom",
];
