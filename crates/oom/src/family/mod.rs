//! The families of messages, one file each, in the order in which they are asked: the particular before the general.

mod arrays;
mod batch;
mod caching_allocator;
mod cluster;
mod cpu_allocator;
mod cuda;
mod cupy;
mod errno;
mod exit;
mod ggml;
mod julia;
mod kernel;
mod language;
mod library;
mod metal;
mod onnx;
mod other_frameworks;
mod paddle;
mod plain;
mod rmm;
mod runtime;
mod rust_gpu;
mod slurm;
mod tensorflow;
mod worker;
mod xla;

use crate::look_alike::never_memory;
use crate::message::Message;
use crate::{Oom, talk};

/// Reads a message; `None` when it is none, only looks like one, or only talks about one.
pub(crate) fn read(message: &Message<'_>) -> Option<Oom> {
    if never_memory(&message.line).is_some() || talk::is_source_code(&message.line) {
        return None;
    }
    FAMILIES.iter().find_map(|family| family(message)).map(Oom::without_impossible_figures)
}

const FAMILIES: &[fn(&Message<'_>) -> Option<Oom>] = &[
    metal::read,
    caching_allocator::read,
    cpu_allocator::read,
    tensorflow::read,
    xla::read,
    paddle::read,
    cupy::read,
    rmm::read,
    ggml::read,
    rust_gpu::read,
    julia::read,
    onnx::read,
    other_frameworks::read,
    library::read,
    cluster::read,
    slurm::read,
    kernel::read,
    worker::read,
    runtime::read,
    arrays::read,
    language::read,
    batch::read,
    errno::read,
    cuda::read,
    exit::read,
    plain::read,
];
