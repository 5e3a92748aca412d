//! ggml: llama.cpp, whisper.cpp, stable-diffusion.cpp.

use crate::message::Message;
use crate::phrase::{between, has_any, number_after, size_after};
use crate::{DeviceKind, Engine, Oom, Place, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if !has_any(
        line,
        &[
            "ggml",
            "llama",
            "alloc_tensor_range",
            "whisper",
            "error loading model: ",
            // LM Studio hands on the last line alone.
            "ailed to initialize the context: ",
        ],
    ) && !names_buffer(line)
    {
        return None;
    }
    if !has_any(line, REFUSALS) {
        return None;
    }
    let device = device(line);
    let place = if device == Some(DeviceKind::Cpu) { Place::Host } else { Place::Device };
    Some(Oom {
        place,
        device_kind: device,
        device: index(line),
        requested: requested(line),
        ..Oom::device(Engine::Ggml, Source::Allocator)
    })
}

/// `500 Internal Server Error: unable to allocate CUDA0 buffer`: ollama hands on no more than which buffer it was.
fn names_buffer(line: &str) -> bool {
    const BACKENDS: [&str; 7] = ["CUDA", "ROCm", "Vulkan", "Metal", "SYCL", "MUSA", "CPU"];
    line.match_indices(" allocate ").any(|(at, word)| {
        let rest = &line[at + word.len()..];
        BACKENDS.iter().any(|backend| rest.starts_with(backend))
            && rest.split(' ').nth(1).is_some_and(|word| word.starts_with("buffer"))
    })
}

const REFUSALS: &[&str] = &[
    "failed to allocate",
    "unable to allocate",
    "out of memory",
    "cudaMalloc failed",
    "insufficient memory",
    "Device memory allocation of size",
    "ErrorOutOfDeviceMemory",
    "OutOfDeviceMemory",
];

/// `CUDA_Host` is pinned memory of the machine.
fn device(line: &str) -> Option<DeviceKind> {
    if has_any(
        line,
        &[
            "CPU buffer",
            "cpu_buffer",
            "_Host buffer",
            "ggml_aligned_malloc",
            "host_malloc",
            "pinned memory",
            "cudaMallocHost",
            "hipHostMalloc",
            "CPU_",
        ],
    ) {
        return Some(DeviceKind::Cpu);
    }
    let table = [
        ("cuda", DeviceKind::Cuda),
        ("hip", DeviceKind::Hip),
        ("rocm", DeviceKind::Hip),
        ("metal", DeviceKind::Mps),
        ("sycl", DeviceKind::Xpu),
        ("vulkan", DeviceKind::Other),
    ];
    let lower = line.to_ascii_lowercase();
    table.into_iter().find(|(name, _)| lower.contains(name)).map(|(_, kind)| kind)
}

fn index(line: &str) -> Option<u32> {
    let name = between(line, "failed to allocate ", " buffer").unwrap_or_default();
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    number_after(line, "on device ").or_else(|| digits.parse().ok())
}

fn requested(line: &str) -> Option<lowtide_core::Bytes> {
    [
        "allocating ",
        "attempted to allocate ",
        "buffer of size ",
        "allocation of size ",
        "size = ",
        "failed to allocate ",
    ]
    .into_iter()
    .find_map(|phrase| size_after(line, phrase))
}
