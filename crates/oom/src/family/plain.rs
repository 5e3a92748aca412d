//! The bare words, when no family knows the text: a report only where nothing around makes it talk.

use crate::message::Message;
use crate::phrase::{has_any, has_any_caseless, size_after_any};
use crate::talk::is_only_mentioned;
use crate::{Certainty, Engine, Oom, Place, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    // A notebook names the error above its stack, and again, with its message, below.
    if line.contains("Traceback (most recent call last)") {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let (at, phrase) = PHRASES.iter().find_map(|phrase| Some((lower.find(phrase)?, phrase)))?;
    if is_only_mentioned(line, at, at + phrase.len()) || is_name(&lower, at, at + phrase.len()) || !reports(&lower) {
        return None;
    }
    let on_device = has_any_caseless(
        line,
        &["cuda", "gpu", "hip ", "rocm", "device", "vram", "runtimeerror: out of memory", "npu", "tpu", "hbm"],
    );
    Some(Oom {
        place: if on_device { Place::Device } else { Place::Host },
        certainty: Certainty::Possible,
        requested: size_after_any(line, &["allocate ", "allocating ", "allocation of "]),
        ..Oom::host(Engine::Unknown, Source::Heap)
    })
}

const PHRASES: &[&str] = &["out of memory", "out-of-memory", "outofmemory", "insufficient memory"];

/// Whether the words are part of a longer name, such as a setting or a file.
fn is_name(lower: &str, at: usize, end: usize) -> bool {
    let joins = |c: char| c == '_' || c == '/' || c == '-' || c == '=';
    lower[..at].ends_with(joins)
        || lower[end..].starts_with(joins)
        || lower[end..].starts_with(".py")
        || lower[end..].starts_with(".md")
}

/// Whether the line sounds like something that happened.
fn reports(lower: &str) -> bool {
    let trimmed = lower.trim();
    // The name of the class is no word for what happened.
    let rest = lower.replace("outofmemoryerror", "");
    PHRASES.iter().any(|phrase| trimmed.starts_with(phrase)) || has_any(&rest, HAPPENED)
}

const HAPPENED: &[&str] = &[
    "error",
    "fatal",
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
