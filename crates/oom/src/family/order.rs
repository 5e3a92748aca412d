//! The order in which the families are asked: the particular before the general.

use super::{
    caching_allocator, cluster, cpu_allocator, cuda, errno, exit, frameworks, ggml, heaps, kernel, metal, plain,
    programs, schedulers, serving, statuses, tensorflow, worker, xla,
};
use crate::Oom;
use crate::look_alike::never_memory;
use crate::message::{Message, without_prefix};
use crate::source_code::is_source_code;

/// Reads a message; `None` when it is none, only looks like one, or only talks about one.
pub(crate) fn read(message: &Message<'_>) -> Option<Oom> {
    let is_code = || is_source_code(without_prefix(&message.line)) && !is_title(message);
    let is_none = never_memory(&message.line).is_some() || is_code();
    if is_none || frameworks::is_skipped(message) {
        return None;
    }
    FAMILIES.iter().find_map(|family| family(message)).map(Oom::without_impossible_figures)
}

/// Whether a message is the heading that a post begins with, or one of several lines that are all written as headings: it has all its
/// figures or the system's number, which no comment has.
fn is_title(message: &Message<'_>) -> bool {
    if !without_prefix(&message.line).starts_with("# ") {
        return false;
    }
    let has_figures = || message.line.contains("Tried to allocate ") && message.line.contains(" total capacity; ");
    if message.lines_above().trim().is_empty() {
        return has_figures() || message.line.contains("Error: ") && message.line.contains("WinError ");
    }
    message.above().starts_with("# ") && has_figures()
}

const FAMILIES: &[fn(&Message<'_>) -> Option<Oom>] = &[
    metal::read,
    serving::read,
    caching_allocator::read,
    cpu_allocator::read,
    tensorflow::read,
    xla::read,
    frameworks::paddle,
    frameworks::cupy,
    frameworks::rmm,
    ggml::read,
    programs::read,
    frameworks::rust_gpu,
    frameworks::julia,
    frameworks::onnx,
    frameworks::others,
    statuses::libraries,
    cluster::read,
    schedulers::slurm,
    kernel::read,
    worker::read,
    statuses::runtimes,
    heaps::arrays,
    heaps::languages,
    schedulers::others,
    errno::read,
    cuda::read,
    exit::read,
    plain::read,
];
