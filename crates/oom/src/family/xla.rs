//! XLA: JAX and torch-xla, on GPU and TPU.

use crate::message::Message;
use crate::phrase::{has_any, has_any_word, number_after, size_after, size_before};
use crate::{Certainty, DeviceKind, Engine, Oom, Place, Source};

use super::tensorflow::exact_in_parentheses;

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let names_status =
        has_any(line, &["RESOURCE_EXHAUSTED", "Resource exhausted", "XlaRuntimeError", "JaxRuntimeError"]);
    // A function in Python that a graph calls ran out of the machine's memory; its error is handed on under this status.
    let names_status = names_status && !line.contains(" MemoryError: ");
    let goes_on =
        || line.trim_end().ends_with("Out") && message.body().contains("Out of memory while trying to allocate");
    if names_status && (names_memory(line) || goes_on()) {
        return Some(exhausted(message));
    }
    if has_any(line, &["XlaRuntimeError: RESOURCE_EXHAUSTED", "JaxRuntimeError: RESOURCE_EXHAUSTED"]) {
        return Some(exhausted(message));
    }
    let is_bare = line.contains("Out of memory while trying to allocate ") && line.contains("bytes");
    // A TPU's worker is named in the first line, and what it lacks in the next.
    let is_reserve = line.contains("Attempting to reserve ") && line.contains("That was not possible");
    if is_reserve
        || is_bare
        || line.contains("an out of memory in memory space hbm")
        || line.contains("BufferAssignment OOM")
    {
        return Some(exhausted(message));
    }
    None
}

/// Whether a word for memory or for getting it stands in a line: every service gives this status for what it has no more of.
fn names_memory(line: &str) -> bool {
    const WORDS: &str =
        "memory mem oom hbm allocate allocating allocated allocation allocator reserve reserved reserving";
    has_any_word(line, WORDS) || has_any(line, &["BufferAssignment", "llocat"])
}

fn exhausted(message: &Message<'_>) -> Oom {
    let body = message.body();
    let on_host = has_any(&message.line, &["pinned_host", "host_bfc", "on host", "host memory", "Host memory"]);
    let on_tpu = has_any(body, &["hbm", "HBM", "TPU", "bottom of memory", "top of memory"]);
    Oom {
        place: if on_host { Place::Host } else { Place::Device },
        certainty: if says_so(body) { Certainty::Sure } else { Certainty::Likely },
        device_kind: on_tpu.then_some(DeviceKind::Tpu),
        device: number_after(body, "device ordinal "),
        requested: requested(body),
        capacity: capacity(body),
        free: size_after(body, "There are "),
        ..Oom::device(Engine::Xla, Source::Allocator)
    }
}

fn says_so(body: &str) -> bool {
    has_any(body, &["ut of memory", "llocat", "reserve", "OOM", "xceeded hbm"])
}

fn requested(body: &str) -> Option<lowtide_core::Bytes> {
    let request = [
        "trying to allocate ",
        "Out of memory allocating ",
        "Failed to allocate request for ",
        "Attempting to reserve ",
        "Attempting to allocate ",
        "ailed to allocate ",
        "Used ",
    ]
    .into_iter()
    .find_map(|phrase| Some((body.split_once(phrase)?.1, size_after(body, phrase)?)));
    let (rest, size) = request?;
    let sentence = rest.split(". ").next().unwrap_or(rest);
    exact_in_parentheses(sentence).or(Some(size))
}

/// `Used 20.35G of 15.48G hbm.`, or `HBM capacity 8.00G:`
fn capacity(body: &str) -> Option<lowtide_core::Bytes> {
    let used = body.split_once("Used ").and_then(|(_, rest)| size_before(rest, " hbm"));
    used.or_else(|| size_after(body, "HBM capacity "))
}
