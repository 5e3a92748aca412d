//! The heaps of the languages: Python, Rust, C++, Java, JavaScript, Go.

use crate::message::Message;
use crate::phrase::{between, has_any, size_after};
use crate::{Certainty, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    rust(line).or_else(|| java(line)).or_else(|| script(line)).or_else(|| cpp(line)).or_else(|| python(message))
}

fn rust(line: &str) -> Option<Oom> {
    let size = between(line, "memory allocation of ", " failed")?;
    Some(Oom { requested: size_after(size, ""), ..Oom::host(Engine::Rust, Source::Heap) })
}

fn java(line: &str) -> Option<Oom> {
    let threads = line.contains("unable to create") && line.contains("native thread");
    let names_heap =
        line.contains("OutOfMemoryError: ") && has_any(line, &["Java heap space", "GC overhead limit", "Metaspace"]);
    if line.contains("java.lang.OutOfMemoryError") || names_heap {
        let certainty = if threads { Certainty::Possible } else { Certainty::Sure };
        return Some(Oom { certainty, ..Oom::host(Engine::Java, Source::Heap) });
    }
    let crash = has_any(
        line,
        &[
            "insufficient memory for the Java Runtime",
            "Native memory allocation (mmap) failed",
            "Native memory allocation (malloc) failed",
        ],
    );
    let requested = size_after(line, "failed to map ").or_else(|| size_after(line, "failed to allocate "));
    crash.then(|| Oom { requested, ..Oom::host(Engine::Java, Source::Heap) })
}

fn script(line: &str) -> Option<Oom> {
    if has_any(line, &["JavaScript heap out of memory", "Reached heap limit Allocation failed"]) {
        return Some(Oom::host(Engine::Node, Source::Heap));
    }
    let go = has_any(line, &["runtime: out of memory", "runtime: cannot allocate memory"]);
    go.then(|| Oom { requested: size_after(line, "cannot allocate "), ..Oom::host(Engine::Go, Source::Heap) })
}

fn cpp(line: &str) -> Option<Oom> {
    line.contains("std::bad_alloc")
        .then(|| Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Cpp, Source::Heap) })
}

/// `MemoryError` at the start of a line, or after a rank or a logger's prefix, with its colon or nothing.
fn python(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let (before, rest) = line.split_once("MemoryError")?;
    let stands_alone = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
    let is_raised =
        rest.trim().is_empty() || rest.starts_with(": ") || rest.starts_with("()") || rest.starts_with("('");
    (stands_alone && is_raised).then(|| Oom {
        requested: size_after(message.body(), "nable to allocate "),
        ..Oom::host(Engine::Python, Source::Heap)
    })
}
