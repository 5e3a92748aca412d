//! The order in which the families are asked: the particular before the general.

use super::{
    arrays, batch, caching_allocator, cluster, cpu_allocator, cuda, cupy, errno, exit, ggml, julia, kernel, language,
    library, metal, onnx, other_frameworks, paddle, plain, rmm, runtime, rust_gpu, slurm, tensorflow, worker, xla,
};
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
