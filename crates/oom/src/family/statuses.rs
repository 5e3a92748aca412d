//! Names of statuses: of device runtimes, and of libraries that ask the driver by themselves.

use crate::message::Message;
use crate::names::is_only_named;
use crate::phrase::{has_any, size_after};
use crate::{Certainty, DeviceKind, Engine, Oom, Source};

/// cuBLAS, cuDNN, NCCL and their ROCm twins. Their statuses have other causes too, so most of them are less than sure.
pub(super) fn libraries(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    cuda_calloc(line).or_else(|| collectives(line)).or_else(|| outside_allocator(line)).or_else(|| status(line))
}

fn collectives(line: &str) -> Option<Oom> {
    if !has_any(line, &["NCCL", "nccl", "RCCL", "rccl", "Cuda failure", "HIP failure"]) {
        return None;
    }
    if line.contains("shared memory segment") && has_any(line, &["Error while", "rror:", "ailed"]) {
        let requested = size_after(line, "(size ");
        return Some(Oom { certainty: Certainty::Likely, requested, ..Oom::host(Engine::Cuda, Source::SharedMemory) });
    }
    let says_so = has_any(line, &["'out of memory'", "out of memory", "CUDA_ERROR_OUT_OF_MEMORY"]);
    says_so.then(|| Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(Engine::Cuda, Source::Collectives) })
}

/// NCCL's last error, which it prints in a line of its own: `Failed to CUDA calloc async 8388608 bytes`, and of pinned memory `Failed
/// to CUDA host alloc 1048576 bytes`.
fn cuda_calloc(line: &str) -> Option<Oom> {
    if let Some((_, size)) = line.split_once("Failed to CUDA host alloc ") {
        return Some(Oom { requested: size_after(size, ""), ..Oom::host(Engine::Cuda, Source::Collectives) });
    }
    let (_, rest) = line.split_once("Failed to CUDA calloc")?;
    let requested = size_after(rest, "async ").or_else(|| size_after(rest, " "));
    let device_kind = Some(DeviceKind::Cuda);
    Some(Oom { requested, device_kind, ..Oom::device(Engine::Cuda, Source::Collectives) })
}

fn outside_allocator(line: &str) -> Option<Oom> {
    // Darknet tells of each layer's algorithm in the line in which it fails.
    let is_darknet = line.contains("CUDNN-slow") || line.contains("CUDA Error: out of memory");
    // `CUDNN_STATUS_EXECUTION_FAILED. Am I out of memory?` asks only.
    let says_both = |sentence: &str| {
        has_any(sentence, &["cuDNN", "CUDNN"])
            && has_any(sentence, &["CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "OutOfMemory"])
    };
    let by_dnn = !is_darknet && line.split(['?', '!']).flat_map(|part| part.split(". ")).any(says_both);
    by_dnn.then(|| Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(Engine::Cuda, Source::Dnn) })
}

fn status(line: &str) -> Option<Oom> {
    let (name, engine, source, certainty) = STATUSES.iter().find(|(name, ..)| line.contains(name))?;
    // A warning takes another way, and a check by number means what the number says.
    let is_other = line.contains("UserWarning: ") || *name == NOT_SUPPORTED && line.contains(" vs. 0)");
    let is_only_named = line.find(name).is_some_and(|at| is_only_named(line, at, at + name.len()));
    let kind = if *engine == Engine::Rocm { DeviceKind::Hip } else { DeviceKind::Cuda };
    (!is_other && !is_only_named).then(|| Oom {
        certainty: *certainty,
        device_kind: Some(kind),
        ..Oom::device(*engine, *source)
    })
}

const NOT_SUPPORTED: &str = "CUDNN_STATUS_NOT_SUPPORTED";

const STATUSES: &[(&str, Engine, Source, Certainty)] = &[
    ("CUBLAS_STATUS_ALLOC_FAILED", Engine::Cuda, Source::Blas, Certainty::Possible),
    ("CUBLAS_STATUS_NOT_INITIALIZED", Engine::Cuda, Source::Blas, Certainty::Possible),
    // The same in PyTorch's first releases and in ggml, by the words for them.
    ("cublas runtime error : resource allocation failed", Engine::Cuda, Source::Blas, Certainty::Possible),
    ("CUDA error: the resource allocation failed", Engine::Cuda, Source::Blas, Certainty::Possible),
    ("cublas runtime error : library not initialized", Engine::Cuda, Source::Blas, Certainty::Possible),
    ("CUSOLVER_STATUS_ALLOC_FAILED", Engine::Cuda, Source::Blas, Certainty::Likely),
    ("CUSPARSE_STATUS_ALLOC_FAILED", Engine::Cuda, Source::Blas, Certainty::Likely),
    ("CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", Engine::Cuda, Source::Blas, Certainty::Possible),
    ("CUFFT_ALLOC_FAILED", Engine::Cuda, Source::Blas, Certainty::Likely),
    ("CURAND_STATUS_ALLOCATION_FAILED", Engine::Cuda, Source::Blas, Certainty::Likely),
    ("CUDNN_STATUS_ALLOC_FAILED", Engine::Cuda, Source::Dnn, Certainty::Likely),
    ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", Engine::Cuda, Source::Dnn, Certainty::Likely),
    ("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", Engine::Cuda, Source::Dnn, Certainty::Possible),
    ("CUDNN_STATUS_NOT_INITIALIZED", Engine::Cuda, Source::Dnn, Certainty::Possible),
    // What PyTorch says where no way of computing found enough room.
    ("nable to find a valid cuDNN algorithm", Engine::Cuda, Source::Dnn, Certainty::Possible),
    ("nable to find an engine to execute this computation", Engine::Cuda, Source::Dnn, Certainty::Possible),
    (NOT_SUPPORTED, Engine::Cuda, Source::Dnn, Certainty::Slight),
    ("CUDNN_STATUS_INTERNAL_ERROR", Engine::Cuda, Source::Dnn, Certainty::Slight),
    ("rocblas_status_memory_error", Engine::Rocm, Source::Blas, Certainty::Possible),
    ("HIPBLAS_STATUS_ALLOC_FAILED", Engine::Rocm, Source::Blas, Certainty::Possible),
    ("miopenStatusAllocFailed", Engine::Rocm, Source::Dnn, Certainty::Likely),
];

/// ROCm, Level Zero, SYCL, OpenCL, Vulkan.
pub(super) fn runtimes(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let is_reported = |name: &str| line.find(name).is_some_and(|at| !is_only_named(line, at, at + name.len()));
    if let Some((_, engine)) = HOST.iter().find(|(name, _)| is_reported(name)) {
        return Some(Oom::host(*engine, Source::Runtime));
    }
    let (_, engine, certainty) = DEVICE.iter().find(|(name, ..)| is_reported(name))?;
    Some(Oom { certainty: *certainty, ..Oom::device(*engine, Source::Runtime) })
}

const HOST: &[(&str, Engine)] =
    &[("VK_ERROR_OUT_OF_HOST_MEMORY", Engine::Vulkan), ("OUT_OF_HOST_MEMORY", Engine::Oneapi)];

const DEVICE: &[(&str, Engine, Certainty)] = &[
    ("hipErrorOutOfMemory", Engine::Rocm, Certainty::Sure),
    ("hipErrorMemoryAllocation", Engine::Rocm, Certainty::Sure),
    ("HIP error: out of memory", Engine::Rocm, Certainty::Sure),
    ("HSA_STATUS_ERROR_OUT_OF_RESOURCES", Engine::Rocm, Certainty::Likely),
    ("VK_ERROR_OUT_OF_DEVICE_MEMORY", Engine::Vulkan, Certainty::Sure),
    ("ErrorOutOfDeviceMemory", Engine::Vulkan, Certainty::Sure),
    ("OUT_OF_DEVICE_MEMORY", Engine::Oneapi, Certainty::Sure),
    ("CL_MEM_OBJECT_ALLOCATION_FAILURE", Engine::Oneapi, Certainty::Likely),
    ("MEM_OBJECT_ALLOCATION_FAIL", Engine::Oneapi, Certainty::Likely),
    ("Memory Object Allocation Failure", Engine::Oneapi, Certainty::Likely),
    ("CL_OUT_OF_RESOURCES", Engine::Oneapi, Certainty::Possible),
    // PyOpenCL.
    ("failed: OUT_OF_RESOURCES", Engine::Oneapi, Certainty::Possible),
    ("PI_ERROR_OUT_OF_RESOURCES", Engine::Oneapi, Certainty::Possible),
    ("UR_RESULT_ERROR_OUT_OF_RESOURCES", Engine::Oneapi, Certainty::Possible),
    ("DXGI_ERROR_OUT_OF_MEMORY", Engine::Windows, Certainty::Sure),
];
