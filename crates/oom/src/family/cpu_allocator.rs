//! PyTorch's CPU allocator, and the files it shares between processes.

use crate::message::Message;
use crate::phrase::{has_any, size_after, size_before};
use crate::{Certainty, DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("DefaultCPUAllocator:")
        && has_any(line, &["allocate memory", "not enough memory", "posix_memalign"])
    {
        return Some(refused(message.body()));
    }
    if line.contains("memory: you tried to allocate ")
        || line.contains("posix_memalign failed")
        || (line.contains("alloc_cpu") && line.contains("tried to allocate"))
    {
        return Some(refused(message.body()));
    }
    // Caffe's: `Check failed: *ptr host allocation of size 141386560 failed`
    if line.contains("host allocation of size ") && line.contains(" failed") {
        let requested = size_after(line, "allocation of size ");
        return Some(Oom { requested, ..Oom::host(Engine::Unknown, Source::Allocator) });
    }
    // As somebody quotes it who leaves out what it says.
    if has_any(line, &["enforce fail at CPUAllocator.cpp", "enforce fail at alloc_cpu.cpp"]) {
        return Some(Oom { certainty: Certainty::Possible, ..refused(message.body()) });
    }
    if line.contains("memalign(") && message.body().contains("12 vs 0") {
        return Some(refused(message.body()));
    }
    // `Alloc 524288000 error!`, and in the next line the call that failed.
    if line.contains("memalign(") && line.contains("12 != 0") {
        let requested = size_after(&message.above(), "Alloc ");
        return Some(Oom { requested, ..Oom::host(Engine::Paddle, Source::Allocator) });
    }
    // Too many open files are refused by the same call, and named.
    let is_unexplained = |line: &str| {
        let behind =
            line.split_once("unable to open shared memory object </torch_")?.1.split_once("in read-write mode")?.1;
        // A tracker puts a number behind its titles.
        Some(!behind.trim_start_matches(['`', '\'', '"', '*']).starts_with(':'))
    };
    if is_unexplained(line) == Some(true) {
        return Some(Oom { certainty: Certainty::Slight, ..Oom::host(Engine::PyTorch, Source::SharedMemory) });
    }
    is_shared_file(line).then(|| Oom {
        certainty: Certainty::Likely,
        requested: size_after(line, "unable to mmap ").or_else(|| size_before(line, " from file")),
        ..Oom::host(Engine::PyTorch, Source::SharedMemory)
    })
}

fn refused(body: &str) -> Oom {
    Oom {
        device_kind: Some(DeviceKind::Cpu),
        requested: size_after(body, "tried to allocate "),
        ..Oom::host(Engine::PyTorch, Source::Allocator)
    }
}

/// Tensors handed between processes live in files `torch_PID_N`, in memory.
fn is_shared_file(line: &str) -> bool {
    let names_file = has_any(line, &["</torch_", "<torch_", "shared memory(shm)", "shared memory (shm)"]);
    let fails = has_any(
        line,
        &[
            "unable to mmap",
            "unable to write to file",
            "unable to allocate shared",
            "unable to open shared",
            "unable to resize file",
        ],
    );
    names_file
        && fails
        && has_any(
            line,
            &[
                "Cannot allocate memory",
                "No space left",
                "shared memory(shm)",
                "(12)",
                "(28)",
                // Older versions do not say why.
                "unable to write to file </torch_",
            ],
        )
}
