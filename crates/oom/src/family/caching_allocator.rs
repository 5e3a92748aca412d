//! PyTorch's caching allocators: CUDA, ROCm, XPU, NPU and every other that writes `<NAME> out of memory. Tried to allocate`.
//!
//! Four shapes: figures in parentheses (to 2.0), sentences (from 2.1), the stream-ordered backend's table (`Currently allocated : ..`), and
//! the early refusal (`preemptively rejected .. Requested size:`). Lowtide's own CPU allocator writes the second.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{figure_after, has_any, number_after, size_after, size_before};
use crate::talk::{is_quoted, tells_of_oneself};
use crate::{Certainty, DeviceKind, Engine, Oom, Place, ProcessUse, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    if !has_any(
        &message.line,
        &[
            "ut of memory",
            "would exceed allowed memory",
            "preemptively rejected",
            "OutOfMemoryError",
            "total capac",
            "Tried to allocate",
            " allowed; ",
            "NVML_SUCCESS",
            "larger than 4GB",
            "GPU video memory",
        ],
    ) {
        return None;
    }
    if message.line.contains("ut of memory") && message.line.contains("tried to allocate") {
        return lower_case(message);
    }
    let body = message.body();
    if message.line.contains("would exceed allowed memory") {
        return Some(stream_ordered(body));
    }
    if body.contains("preemptively rejected") && has_any(body, &["Requested size", "out of memory", "OutOfMemoryError"])
    {
        return Some(early_refusal(body));
    }
    if message.line.contains("NVML_SUCCESS == r INTERNAL ASSERT FAILED") && body.contains("CUDACachingAllocator") {
        return Some(unwritten());
    }
    if has_any(&message.line, &["not enough GPU video memory", "DML allocator out of memory"]) {
        return Some(direct_ml(body));
    }
    let broken = message.body_broken_in_words();
    let (head, tail) = split(&message.line, body).or_else(|| split(&message.line, broken.as_deref()?))?;
    let tail = without_text_behind(tail);
    let mut oom = figures(head, tail);
    // Who tells of himself and quotes all figures reports, whatever words stand before.
    let sentence = [". ", "! ", "? "].iter().fold(head, |rest, end| rest.rsplit(end).next().unwrap_or(rest));
    let is_told = || [head, sentence].into_iter().any(tells_of_oneself) || says(head);
    let is_own = || oom.requested.and(oom.capacity).is_some() && is_told();
    if is_quoted(&message.line, head.len()) && !is_own() {
        return None;
    }
    if let Some((_, tail)) = broken.as_deref().and_then(|broken| split(&message.line, broken)) {
        oom.add(figures(head, without_text_behind(tail)));
    }
    Some(oom)
}

/// What follows the request, to the end of the parentheses in which its figures stand, where they do.
fn without_text_behind(tail: &str) -> &str {
    let Some(open) = opening_of_figures(tail) else { return tail };
    tail[open..].find(')').map_or(tail, |close| &tail[..open + close + 1])
}

/// Where `(GPU 0; ` begins.
fn opening_of_figures(tail: &str) -> Option<usize> {
    tail.match_indices('(').map(|(at, _)| at).find(|at| {
        let rest = &tail[at + 1..];
        let name = rest.find(' ').unwrap_or(0);
        let index = rest[name..].trim_start().split(';').next().unwrap_or_default();
        let is_index = !index.is_empty() && index.len() < 4 && index.bytes().all(|byte| byte.is_ascii_digit());
        name > 0 && rest[..name].bytes().all(|byte| byte.is_ascii_uppercase()) && is_index
    })
}

/// `When I run your code it says "RuntimeError: `: what somebody was told, whoever reads it.
fn says(head: &str) -> bool {
    const SAYS: [&str; 8] = ["says", "said", "shows", "gives", "raises", "reports", "throws", "prints"];
    let before = head.rfind(['"', '`', '\u{201c}']).map_or(head, |quote| &head[..quote]);
    let last = before.trim_end_matches([' ', ':', ',']).rsplit(' ').next().unwrap_or_default();
    SAYS.contains(&last)
}

/// A message that somebody wrote down without its capitals.
fn lower_case(message: &Message<'_>) -> Option<Oom> {
    let names =
        [("tried to allocate", "Tried to allocate"), ("(gpu ", "(GPU "), ("gpu ", "GPU "), ("pytorch", "PyTorch")];
    let capitals = |text: &str| names.iter().fold(text.to_owned(), |text, (lower, name)| text.replace(lower, name));
    let (line, body) = (capitals(&message.line), capitals(message.body()));
    let (head, tail) = split(&line, &body)?;
    (!is_quoted(&line, head.len())).then(|| figures(&head.to_ascii_uppercase(), tail))
}

fn figures(head: &str, tail: &str) -> Oom {
    let is_block_limit = head.contains("can NOT allocate memory block");
    let kind = if is_block_limit { DeviceKind::Xpu } else { kind(head) };
    let place = if kind == DeviceKind::Cpu { Place::Host } else { Place::Device };
    Oom {
        place,
        device_kind: Some(kind),
        device: device_index(tail),
        requested: size_after(tail, "Tried to allocate "),
        capacity: size_before(tail, " total capac")
            // As some pages hand it on.
            .or_else(|| size_before(tail, " totalcapac"))
            .or_else(|| size_after(tail, " total capacity of "))
            .or_else(|| size_after(tail, " total capacty of ")),
        free: size_before(tail, " is free").or_else(|| size_before(tail, " free;")),
        in_use: size_after(tail, "this process has "),
        allocated: size_before(tail, " already allocated").or_else(|| size_before(tail, " is allocated by PyTorch")),
        reserved: size_before(tail, " reserved in total"),
        reserved_unallocated: size_before(tail, " is reserved by PyTorch but unallocated")
            .or_else(|| size_before(tail, " cached"))
            .or_else(|| size_before(tail, " cache)")),
        private_pools: size_before(tail, " allocated in private pools"),
        limit: size_before(tail, " allowed;").or_else(|| size_after(head, "size larger than ")),
        processes: processes(tail),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    }
}

/// What stands before and after the opening words; the request must follow at once, or else the figures are someone else's.
fn split<'a>(line: &'a str, body: &'a str) -> Option<(&'a str, &'a str)> {
    // Intel's cards refuse single blocks by their size; of a message that is cut short, the figures are left.
    if let Some(at) = body.find("larger than 4GB! ").filter(|at| *at < line.len()) {
        return Some(body.split_at(at + "larger than 4GB! ".len()));
    }
    if !line.contains("out of memory") {
        let is_figures = line.contains(" total capac") && line.contains(" already allocated")
            || line.contains("Tried to allocate") && body.contains(" total capac");
        let start = line.find("Tried to allocate").or_else(|| line.find("(GPU ")).filter(|_| is_figures);
        // Of some the end alone is left, and it begins with the limit.
        let end = || line.contains(" reserved in total by").then(|| line.find(" allowed; "))?.map(|_| 0);
        return start.or_else(end).map(|at| body.split_at(at));
    }
    let (at, opening) = body.match_indices("out of memory").find(|(at, opening)| {
        let rest = body[at + opening.len()..].trim_start_matches(['.', ' ', '!', ',']);
        rest.starts_with("Tried to allocate") || rest.starts_with("(GPU ")
    })?;
    (at < line.len()).then(|| (&body[..at], &body[at + opening.len()..]))
}

fn kind(head: &str) -> DeviceKind {
    let name = head.trim_end().rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    match name {
        "CUDA" | "GPU" => DeviceKind::Cuda,
        "HIP" | "ROCm" => DeviceKind::Hip,
        "XPU" => DeviceKind::Xpu,
        "NPU" => DeviceKind::Npu,
        "MUSA" => DeviceKind::Musa,
        "MLU" => DeviceKind::Mlu,
        "TPU" => DeviceKind::Tpu,
        "CPU" => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    }
}

/// The index stands in `(GPU 0; ` or in `GPU 0 has a total`.
fn device_index(tail: &str) -> Option<u32> {
    let named = tail.split(" has a total").next().filter(|head| head.len() < tail.len());
    let word = named.and_then(|head| head.rsplit(' ').next()).and_then(|word| word.parse().ok());
    let parenthesis = || number_after(tail[opening_of_figures(tail)?..].split(';').next()?, " ");
    word.or_else(parenthesis)
}

/// `Process 20398 has 14.52 GiB memory in use.`, once for each.
fn processes(tail: &str) -> Vec<ProcessUse> {
    let named = tail.match_indices("Process ").filter_map(|(at, word)| {
        let rest = &tail[at + word.len()..];
        let (pid, rest) = rest.split_once(" has ")?;
        Some(ProcessUse {
            pid: pid.parse().ok()?,
            name: None,
            used: size_after(rest.split(" memory in use").next()?, ""),
        })
    });
    let mut processes: Vec<ProcessUse> = Vec::new();
    for process in named {
        // A driver that lists computing and drawing apart names one twice.
        match processes.iter_mut().find(|known| known.pid == process.pid) {
            Some(known) => known.used = known.used.max(process.used),
            None => processes.push(process),
        }
    }
    processes
}

/// PyTorch writing its out-of-memory message asks the driver who holds what, which a slice of a card (MIG) refuses.
fn unwritten() -> Oom {
    let device_kind = Some(DeviceKind::Cuda);
    Oom { certainty: Certainty::Likely, device_kind, ..Oom::device(Engine::PyTorch, Source::Allocator) }
}

/// `Could not allocate tensor with 377487360 bytes. There is not enough GPU video memory available!`
fn direct_ml(body: &str) -> Oom {
    Oom {
        requested: size_after(body, "tensor with "),
        device_kind: Some(DeviceKind::Other),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    }
}

/// The backend over `cudaMallocAsync`: a table, one figure to a line, whose user limit is garbage when none was set.
fn stream_ordered(body: &str) -> Oom {
    let row = |name: &str| -> Option<Bytes> {
        let (_, rest) = body.split_once(name)?;
        size_after(rest.trim_start().strip_prefix(':')?, "")
    };
    Oom {
        device: number_after(body, "llocation on device "),
        allocated: row("Currently allocated"),
        requested: row("Requested"),
        capacity: row("Device limit"),
        free: row("Free (according to CUDA)"),
        limit: row("PyTorch limit (set by user-supplied memory fraction)"),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    }
}

/// `throw_on_cudamalloc_oom`: refused before the driver was asked.
fn early_refusal(body: &str) -> Oom {
    let requested = figure_after(body, "Requested size: ").or_else(|| figure_after(body, "Requested size "));
    Oom {
        requested: requested.and_then(|figure| figure.memory()),
        device: number_after(body, "device ").or_else(|| number_after(body, "GPU ")),
        capacity: size_after(body, "total capacity of "),
        free: size_before(body, " is free"),
        limit: size_before(body, " allowed"),
        allocated: size_before(body, " is allocated by PyTorch"),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    }
}
