//! The heaps of arrays and languages: memory of the host that a process asks for itself.

use lowtide_core::Bytes;

use crate::article::is_imperative;
use crate::figure::tensor_bytes;
use crate::level::is_level;
use crate::message::{Message, is_entry, without_prefix};
use crate::names::is_only_named;
use crate::phrase::{between, end_of, figure_after, has_any, has_any_caseless, size_after, size_after_any};
use crate::talk::{is_named_in_quotes, tells_of_oneself};
use crate::{Certainty, Engine, Oom, Source};

/// numpy, pandas, Arrow, R.
pub(super) fn arrays(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("nable to allocate array with shape") {
        return Some(Oom { requested: by_shape(message.body()), ..Oom::host(Engine::Numpy, Source::Heap) });
    }
    // More than a process has addresses for.
    if line.contains("ValueError: array is too big") {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Numpy, Source::Heap) });
    }
    // `one may then read something like` and the message is no array's.
    let is_named = || line.find("MemoryError").is_some_and(|at| is_named_in_quotes(line, at));
    if has_any(line, &["nable to allocate ", "ArrayMemoryError"])
        && !is_named()
        && (line.contains("MemoryError")
            || has_any(message.body(), &["for an array with shape", "ArrayMemoryError", "bytes for "]))
    {
        return Some(Oom {
            requested: size_after(message.body(), "nable to allocate "),
            ..Oom::host(Engine::Numpy, Source::Heap)
        });
    }
    let is_refused = line.split_once("alloc of size ").is_some_and(|(_, rest)| rest.contains(" failed"));
    if is_refused || line.contains("ArrowMemoryError") {
        return Some(Oom { requested: size_after(line, "alloc of size "), ..Oom::host(Engine::Arrow, Source::Heap) });
    }
    if line.contains("cannot allocate vector of size ") {
        return Some(Oom { requested: size_after(line, "vector of size "), ..Oom::host(Engine::R, Source::Heap) });
    }
    r_limit(line).or_else(|| matlab(line)).or_else(|| julia(line))
}

/// R's own limit: `vector memory exhausted (limit reached?)`, `vector memory limit of 16.0 Gb reached, see mem.maxVSize()`
fn r_limit(line: &str) -> Option<Oom> {
    let is_reached = line.contains("vector memory limit of ") && line.contains(" reached");
    (is_reached || line.contains("vector memory exhausted (limit reached"))
        .then(|| Oom { limit: size_after(line, "memory limit of "), ..Oom::host(Engine::R, Source::Heap) })
}

/// `Requested 5000x5000 (18.6GB) array exceeds maximum array size preference (15.9GB).`, and what MATLAB says where the system refused.
fn matlab(line: &str) -> Option<Oom> {
    if let Some((asked, limit)) = line.split_once("array exceeds maximum array size preference") {
        let requested = asked.rsplit_once('(').and_then(|(_, size)| size_after(size, ""));
        return Some(Oom { requested, limit: size_after(limit, "("), ..Oom::host(Engine::Matlab, Source::Heap) });
    }
    if line.contains("Out of memory on device. To view more detail") {
        return Some(Oom::device(Engine::Matlab, Source::Allocator));
    }
    let is_refused = line.contains("Out of memory. Type \"help memory\" for your options");
    is_refused.then(|| Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Matlab, Source::Heap) })
}

/// `ERROR: LoadError: OutOfMemoryError()`: Julia's own error has no module before its name.
fn julia(line: &str) -> Option<Oom> {
    let (head, _) = line.split_once("OutOfMemoryError()")?;
    let is_raised = head.trim_start().starts_with("ERROR: ") && !head.ends_with(['.', '_']);
    is_raised.then(|| Oom::host(Engine::Julia, Source::Heap))
}

/// Before 1.18 numpy gave no size: `Unable to allocate array with shape (100, 100) and data type float64`.
fn by_shape(body: &str) -> Option<Bytes> {
    let dtype = body.split("data type ").nth(1)?.split_whitespace().next()?;
    tensor_bytes(between(body, "shape (", ")")?, dtype)
}

/// Python, Rust, C++, Java, JavaScript, Go.
pub(super) fn languages(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    rust(line)
        .or_else(|| java(line))
        .or_else(|| script(line))
        .or_else(|| cpp(line))
        .or_else(|| fortran(line))
        .or_else(|| python(message))
}

/// gfortran's runtime.
fn fortran(line: &str) -> Option<Oom> {
    line.contains("Allocation would exceed memory limit").then(|| Oom::host(Engine::Unknown, Source::Heap))
}

fn rust(line: &str) -> Option<Oom> {
    let size = between(line, "memory allocation of ", " failed")?;
    Some(Oom { requested: size_after(size, ""), ..Oom::host(Engine::Rust, Source::Heap) })
}

fn java(line: &str) -> Option<Oom> {
    let threads = line.contains("unable to create") && line.contains("native thread");
    let names_heap = has_any_caseless(line, &["outofmemoryerror: "])
        && has_any(line, &["Java heap space", "GC overhead limit", "Metaspace"]);
    let is_spark = line.contains("SparkOutOfMemoryError: ");
    if line.contains("java.lang.OutOfMemoryError") || names_heap || is_spark {
        let certainty = if threads { Certainty::Possible } else { Certainty::Sure };
        let requested = if is_spark { size_after(line, "nable to acquire ") } else { None };
        return Some(Oom { certainty, requested, ..Oom::host(Engine::Java, Source::Heap) });
    }
    // Spark reckons with its heap before it begins.
    if line.contains("System memory ") && line.contains("increase heap size") {
        let limit = size_after(line, "System memory ");
        return Some(Oom { certainty: Certainty::Likely, limit, ..Oom::host(Engine::Java, Source::Heap) });
    }
    let crash = has_any(
        line,
        &[
            "insufficient memory for the Java Runtime",
            "Native memory allocation (mmap) failed",
            "Native memory allocation (malloc) failed",
            "Could not reserve enough space for ",
        ],
    ) || line.contains("os::commit_memory(") && line.contains("failed");
    let requested = size_after_any(line, &["failed to map ", "failed to allocate ", "enough space for "])
        .or_else(|| figure_after(line.split_once("commit_memory(")?.1, ", ")?.memory());
    crash.then(|| Oom { requested, ..Oom::host(Engine::Java, Source::Heap) })
}

fn script(line: &str) -> Option<Oom> {
    let words = [
        "JavaScript heap out of memory",
        "JS heap out of memory",
        "Reached heap limit Allocation failed",
        "[ERR_WORKER_OUT_OF_MEMORY]",
        "'ERR_WORKER_OUT_OF_MEMORY'",
    ];
    if has_any(line, &words) {
        return Some(Oom::host(Engine::Node, Source::Heap));
    }
    let go = has_any(line, &["runtime: out of memory", "runtime: cannot allocate memory"]);
    go.then(|| Oom { requested: size_after(line, "cannot allocate "), ..Oom::host(Engine::Go, Source::Heap) })
}

fn cpp(line: &str) -> Option<Oom> {
    const NAME: &str = "std::bad_alloc";
    // A line may be full of the name.
    const NEAR: usize = 256;
    const RAISED: [&str; 14] = [
        "instance of",
        "error",
        "exception",
        "fail",
        "crash",
        "abort",
        "terminat",
        "caught",
        "threw",
        "thrown",
        "got ",
        "unhandled",
        "critical",
        "fatal",
    ];
    // Compilers, linkers and documents name it too.
    let is_raised = line.match_indices(NAME).any(|(at, _)| {
        let before = without_prefix(&line[..at]).trim_end_matches(['\'', '"', '`', '(', ' ']);
        let near = end_of(before, NEAR);
        let is_opened = before.is_empty()
            || before.ends_with(':')
            || has_any_caseless(near, &RAISED)
            || line[at + NAME.len()..].trim().is_empty() && ends_head_of_entry(before);
        (is_opened || tells_of_oneself(near))
            && !is_only_named(line, at, at + NAME.len())
            && !line[at..].contains("may be thrown")
    });
    is_raised.then(|| Oom { certainty: Certainty::Likely, ..Oom::host(Engine::Cpp, Source::Heap) })
}

/// `[2026-11-20 10:00:00.123] [console]`, `E1120 10:00:00 1234 main.cc:55]`: what a logger puts before a message. A number alone in
/// brackets is of a table or a footnote.
fn ends_head_of_entry(before: &str) -> bool {
    let inner = before.strip_suffix(']').map(|head| head.rsplit('[').next().unwrap_or(head));
    inner.is_some_and(|inner| is_entry(before) || inner.contains(|c: char| c.is_ascii_alphabetic()))
}

/// `MemoryError` at the start of a line, or after a rank or a logger's prefix, with its colon or nothing.
fn python(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    // What a worker could not even hand over.
    if line.contains("Can't pickle <class 'MemoryError'>") {
        return Some(Oom::host(Engine::Python, Source::Heap));
    }
    let (before, rest) = line.split_once("MemoryError")?;
    let stands_alone = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
    // `Show the size when an array gives a MemoryError` asks for something.
    let is_wish = rest.trim().is_empty() && is_imperative(without_prefix(before));
    let is_raised = rest.trim().is_empty() && !is_wish && is_alone(before)
        || rest.strip_prefix(": ").is_some_and(|message| !is_condition(message))
        || rest.trim_end() == ":"
        || rest.starts_with("()")
        || rest.starts_with("('");
    (stands_alone && is_raised && !is_named_in_quotes(line, before.len())).then(|| Oom {
        requested: size_after(message.body(), "nable to allocate "),
        ..Oom::host(Engine::Python, Source::Heap)
    })
}

/// `MemoryError: If the array is too large.`: a document says when it is raised.
fn is_condition(message: &str) -> bool {
    ["if ", "when ", "raised "]
        .iter()
        .any(|word| message.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word)))
}

/// Whether the name of an error with no message behind it is no value of a setting, no item of a list and no leaf of a tree.
fn is_alone(before: &str) -> bool {
    let head = without_prefix(before).trim_matches(['`', '*', '"', '\'', ' ', '(', '[']);
    if is_treated(head) {
        return false;
    }
    let is_error =
        || has_any_caseless(head, &["error", "exception", "fail", "raise", "crash", "died", "caught", "killed"]);
    let is_sentence = || head.contains(char::is_alphanumeric) && !head.ends_with([':', '=', ',', '-', '|']);
    head.is_empty() || is_sentence() || is_error() || head.strip_suffix(':').is_some_and(is_reporter)
}

/// `retry on`, `handles`, `retry_on:`: what a program or a rule does about an error.
fn is_treated(head: &str) -> bool {
    const WORDS: &str =
        "on handle handles handled handling include includes exclude excludes ignore ignores except catch";
    let last = head.trim_end_matches([':', ' ', '=']).rsplit(|c: char| !c.is_alphanumeric()).next();
    last.is_some_and(|last| WORDS.split(' ').any(|word| word.eq_ignore_ascii_case(last)))
}

/// `worker[3]`, `loader.py:12`, `ERROR luigi-interface`, `worker 3`: a single name, path or place before a colon is who reports; a key
/// of several words is of a setting.
fn is_reporter(name: &str) -> bool {
    let mut words = name.split_whitespace().filter(|word| !is_level(word.trim_matches(['[', ']', ':'])));
    let is_name = |word: &str| word.contains(char::is_alphanumeric) && !word.contains(['"', '\'', '=', '{']);
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    words.next().is_some_and(is_name) && words.next().is_none_or(is_number) && words.next().is_none()
}
