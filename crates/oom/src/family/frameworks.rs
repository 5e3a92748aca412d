//! Frameworks and libraries with a message or two each.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{has_any, has_any_caseless, number_after, size_after, size_after_any, size_before};
use crate::{Certainty, DeviceKind, Engine, Oom, Place, Source};

/// PaddlePaddle. It prints six decimals and counts in steps of 1024.
pub(super) fn paddle(message: &Message<'_>) -> Option<Oom> {
    if let Some(oom) = paddle_fluid(&message.line) {
        return Some(oom);
    }
    if message.line.contains("Fail to alloc memory of ") {
        let requested = size_after(&message.line, "alloc memory of ");
        return Some(Oom { requested, ..Oom::host(Engine::Paddle, Source::Allocator) });
    }
    if !message.line.contains("Out of memory error on ") {
        return None;
    }
    let body = message.body();
    Some(Oom {
        device: number_after(body, "Out of memory error on GPU ")
            .or_else(|| number_after(body, "Out of memory error on XPU ")),
        requested: size_after(body, "Cannot allocate "),
        used: size_before(body, " memory has been allocated"),
        free: size_after(body, "available memory is only "),
        limit: size_after(body, "memory usage is limited to "),
        ..Oom::device(Engine::Paddle, Source::Allocator)
    })
}

/// PaddlePaddle's first years: `enforce allocating <= available failed, 10513462067 > 1369702144`
fn paddle_fluid(line: &str) -> Option<Oom> {
    let (_, figures) = line.split_once("enforce allocating <= available failed, ")?;
    let (requested, free) = figures.split_once(" > ")?;
    let bytes = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().map(Bytes);
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        requested: bytes(requested),
        free: bytes(free),
        ..Oom::device(Engine::Paddle, Source::Allocator)
    })
}

/// CuPy's memory pool.
pub(super) fn cupy(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let is_pool = line.contains("Out of memory allocating ") || line.contains("out of memory to allocate ");
    if !is_pool && !line.contains("cupy.cuda.memory.OutOfMemoryError") {
        return None;
    }
    let body = message.body();
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after_any(body, &["Out of memory allocating ", "out of memory to allocate "]),
        allocated: size_after_any(body, &["allocated so far: ", "total "]),
        limit: size_after(body, "limit set to: "),
        ..Oom::device(Engine::Cupy, Source::Allocator)
    })
}

/// RAPIDS, Numba, Thrust: C++ `bad_alloc` that means the device.
pub(super) fn rmm(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let by_rmm = has_any(line, &["rmm::out_of_memory", "RMM failure", "rmm::bad_alloc", "/rmm/"])
        && has_any(line, &["memory", "bad_alloc", "pool size"]);
    let by_driver = has_any(line, &["bad_alloc", "bad allocation"])
        && has_any(
            line,
            &[
                "CUDA error",
                "cudaError",
                "out_of_memory",
                "thrust::",
                // The C++ library's own says nothing behind its name; Thrust's has the driver's words there.
                "bad_alloc: out of memory",
                "bad allocation: out of memory",
            ],
        );
    let by_numba = line.contains("CudaAPIError") && line.contains("OUT_OF_MEMORY");
    // Thrust names the place in its caller's sources: `device_helpers.cuh(456): out of memory`.
    let by_thrust = has_any(line, &[".cu(", ".cuh("]) && line.contains("): out of memory");
    if !by_rmm && !by_driver && !by_numba && !by_thrust {
        return None;
    }
    let body = message.body();
    Some(Oom {
        certainty: if by_rmm || by_driver || by_numba { Certainty::Sure } else { Certainty::Likely },
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after_any(
            body,
            &["failed to allocate ", "failed to allocate: ", "request=", "Requested memory: "],
        ),
        free: size_after(body, "Free memory: "),
        ..Oom::device(Engine::Rmm, Source::Allocator)
    })
}

/// GPU libraries in Rust: candle over cudarc, Burn over CubeCL, wgpu.
pub(super) fn rust_gpu(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("DriverError(CUDA_ERROR_OUT_OF_MEMORY") {
        let engine = if has_any(message.body(), &["cubecl", "burn"]) { Engine::Burn } else { Engine::Candle };
        return Some(Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(engine, Source::Runtime) });
    }
    if has_any(line, &["bytes of device memory", "can't allocate buffer of size", "out of device memory allocating"]) {
        let requested =
            size_after_any(line, &["failed to reserve ", "allocate buffer of size: ", "device memory allocating "]);
        return Some(Oom { requested, ..Oom::device(Engine::Burn, Source::Allocator) });
    }
    if has_any(line, &["Not enough memory left", "wgpu error: Out of Memory"])
        || (line.contains("wgpu") && line.contains("OutOfMemory"))
    {
        return Some(Oom::device(Engine::Wgpu, Source::Runtime));
    }
    None
}

/// CUDA.jl and its siblings: the memory pools of Julia, and the driver below them, whose status Julia gives by number and name.
pub(super) fn julia(message: &Message<'_>) -> Option<Oom> {
    if message.line.contains("ERROR_OUT_OF_MEMORY)") && has_any(&message.line, &["(code #2,", "(code 2,"]) {
        return Some(Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(Engine::Julia, Source::Runtime) });
    }
    if !message.line.contains("Out of GPU memory trying to allocate ") {
        return None;
    }
    let body = message.body();
    // `Effective GPU memory usage: 99.20% (23.500 GiB/23.690 GiB)`
    let (used, capacity) = body
        .split_once("GPU memory usage: ")
        .and_then(|(_, rest)| rest.split_once('('))
        .and_then(|(_, rest)| rest.split_once('/'))
        .map_or((None, None), |(used, capacity)| (size_after(used, ""), size_after(capacity, "")));
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after(body, "trying to allocate "),
        used,
        capacity,
        free: capacity.zip(used).map(|(capacity, used)| capacity.saturating_sub(used)),
        allocated: size_after(body, "emory pool usage: "),
        reserved: size_before(body, " reserved)"),
        ..Oom::device(Engine::Julia, Source::Allocator)
    })
}

/// ONNX Runtime's arena.
pub(super) fn onnx(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let refused = has_any(
        line,
        &["Failed to allocate memory for requested buffer of size", "is smaller than requested bytes of"],
    );
    // DirectML hands on the words of Windows.
    let crashed = line.contains("onnxruntime")
        && has_any(line, &["bad allocation", "std::bad_alloc", "out of memory", "8007000E"]);
    if !refused && !crashed {
        return None;
    }
    let on_device = has_any_caseless(line, &["cuda", "gpu", "rocm", "tensorrt", "dml"]);
    let on_host = has_any_caseless(line, &["cpu", "bad_alloc", "bad allocation"]) && !on_device;
    Some(Oom {
        place: if on_host { Place::Host } else { Place::Device },
        certainty: if on_device || on_host { Certainty::Sure } else { Certainty::Likely },
        requested: size_after_any(line, &["requested buffer of size ", "requested bytes of "]),
        free: size_after(line, "Available memory of "),
        ..Oom::device(Engine::OnnxRuntime, Source::Allocator)
    })
}

/// TensorRT, whose builder tries ways of computing that need more than there is.
fn tensorrt(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let is_builder =
        has_any(line, TENSORRT) && has_any(line, &["OutOfMemory", "out of memory", "could not be allocated"]);
    is_builder.then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after_any(
            message.body(),
            &["Requested amount of memory (", "Requested amount of GPU memory (", "Requested size was "],
        ),
        ..Oom::device(Engine::Cuda, Source::Runtime)
    })
}

/// How TensorRT signs its lines.
const TENSORRT: &[&str] =
    &["DefaultAllocator::allocate", "[TRT]", "[TensorRT]", "virtualMemoryBuffer", "Cuda Error in allocate: "];

/// Whether a builder left out a way of computing for what it says in this line: TensorRT's, PyTorch's compiler.
pub(super) fn is_skipped(message: &Message<'_>) -> bool {
    let leaves_out = |words: &str| message.body().contains(words);
    has_any(&message.line, TENSORRT) && leaves_out("kipping tactic")
        || message.line.contains("select_algorithm.py") && leaves_out("gnoring this choice")
}

/// Huawei's runtime: `Memory_Allocation_Failure(EL0004): Failed to allocate memory requested by GE module.`
fn ascend(message: &Message<'_>) -> Option<Oom> {
    message.line.contains("Memory_Allocation_Failure(").then(|| Oom {
        device_kind: Some(DeviceKind::Npu),
        device: number_after(message.body(), "device_id:"),
        requested: size_after(message.body(), "size:"),
        ..Oom::device(Engine::Unknown, Source::Runtime)
    })
}

/// Intel's Gaudi: `MODULE:SYNHELPER workspace Allocation of size ::14493510400 failed!`, `MODULE:PT_DEVMEM Allocation failed for
/// size::40960000 (39.0625)MB`
fn gaudi(line: &str) -> Option<Oom> {
    let (_, refused) = line.split_once("FATAL ERROR :: MODULE:")?;
    let is_it = refused.contains("llocation") && refused.contains("fail");
    is_it.then(|| Oom {
        device_kind: Some(DeviceKind::Other),
        requested: size_after(refused, "::"),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    })
}

/// AWS Neuron: `[TDRV:dmem_alloc] Failed to alloc DEVICE memory: 4194304`, `nrt_tensor_allocate status=4 message="Allocation Failure"`
fn neuron(line: &str) -> Option<Oom> {
    let is_runtime = line.contains("nrt_") && line.contains("status=4 message=\"Allocation Failure\"");
    (is_runtime || line.contains("Failed to alloc DEVICE memory")).then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Other),
        requested: size_after(line, "DEVICE memory: "),
        ..Oom::device(Engine::Unknown, Source::Allocator)
    })
}

/// Graphcore's compiler, which shares out memory to the tiles of a chip before anything runs: `Out of memory on tile 0: 876476 bytes
/// used but tiles only have 638976 bytes of memory`, `'poplar_stream_memory_allocation_error': ... Out of memory.`
fn graphcore(line: &str) -> Option<Oom> {
    let words = [
        "ut of memory on tile ",
        "variable data onto one or more tiles",
        "receives more data than it has total memory in exchange",
        "graph_memory_allocation_error",
        "stream_memory_allocation_error",
    ];
    has_any(line, &words).then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Other),
        ..Oom::device(Engine::Unknown, Source::Allocator)
    })
}

/// accelerate halved the batch until nothing was left of it.
fn no_batch_fits(line: &str) -> Option<Oom> {
    line.contains("No executable batch size found, reached zero")
        .then(|| Oom { certainty: Certainty::Likely, ..Oom::device(Engine::PyTorch, Source::Allocator) })
}

/// bitsandbytes, which asks the driver itself: `Error out of memory at line 88 in file /build/csrc/ops.cu`
fn bitsandbytes(line: &str) -> Option<Oom> {
    let (_, place) = line.split_once("rror out of memory at line ")?;
    place.contains("csrc").then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Cuda),
        ..Oom::device(Engine::Cuda, Source::Runtime)
    })
}

/// CatBoost's pool, which counts in MB, with or without saying so: `Out of memory. Requested 8880 MB; Free 5902.06 MB`
fn catboost(line: &str) -> Option<Oom> {
    let (head, rest) = line.split_once("Requested ")?;
    let (requested, free) =
        rest.split_once("; Free ").filter(|_| head.ends_with("Out of memory. ") || rest.contains(" MB; "))?;
    let megabytes = |text: &str| {
        let number = text.split([' ', '"']).next()?.parse::<f64>().ok().filter(|number| *number >= 0.0)?;
        Some(Bytes((number * f64::from(1 << 20)) as u64))
    };
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        requested: megabytes(requested),
        free: megabytes(free),
        ..Oom::device(Engine::Unknown, Source::Allocator)
    })
}

/// Deeplearning4j: `Failed to allocate 10486784 bytes from DEVICE [0] memory`
fn nd4j(line: &str) -> Option<Oom> {
    let (head, device) = line.split_once(" bytes from DEVICE [")?;
    let requested = head.rsplit(' ').next()?.parse().ok().map(Bytes);
    Some(Oom { requested, device: number_after(device, ""), ..Oom::device(Engine::Java, Source::Allocator) })
}

/// MXNet, TensorRT, Deeplearning4j, Gaudi, Neuron, Graphcore, MindSpore, OneFlow, bitsandbytes, spconv.
pub(super) fn others(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let is_pool = has_any(line, &["pooled_storage_manager", "mshadow"])
        && has_any(line, &["emory allocation failed", "out of memory"]);
    if is_pool || line.contains("cudaMalloc retry failed: out of memory") {
        return Some(Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(Engine::Mxnet, Source::Allocator) });
    }
    if let Some(oom) = tensorrt(message)
        .or_else(|| nd4j(line))
        .or_else(|| ascend(message))
        .or_else(|| gaudi(line))
        .or_else(|| neuron(line))
        .or_else(|| graphcore(line))
        .or_else(|| no_batch_fits(line))
        .or_else(|| catboost(line))
        .or_else(|| bitsandbytes(line))
    {
        return Some(oom);
    }
    if line.contains("is more than total mem size") {
        return Some(mindspore_pool(line));
    }
    if let Some((_, rest)) = line.split_once("Malloc device memory failed, size[") {
        return Some(Oom {
            requested: size_after(rest, ""),
            device: number_after(rest, "Device "),
            capacity: size_after(rest, "HBM size:"),
            free: size_after(rest, "free size:"),
            ..Oom::device(Engine::Mindspore, Source::Runtime)
        });
    }
    if has_any(line, &["emory isn't enough and alloc failed", "emory not enough:"]) {
        return Some(mindspore(message.body()));
    }
    if line.contains("oneflow") && has_any(line, &["out of memory", "Out of memory", "OOM"]) {
        return Some(Oom {
            requested: size_after(line, "allocate "),
            ..Oom::device(Engine::Oneflow, Source::Allocator)
        });
    }
    if line.contains("cuda failed with error 2") {
        return Some(Oom { device_kind: Some(DeviceKind::Cuda), ..Oom::device(Engine::Cuda, Source::Runtime) });
    }
    None
}

/// `TotalUsedMemStatistics : 29356337664 plus ... plus alloc size : 301990400 is more than total mem size : 29464985600.`
fn mindspore_pool(line: &str) -> Oom {
    Oom {
        requested: size_after(line, "alloc size : "),
        allocated: size_after(line, "TotalUsedMemStatistics : "),
        capacity: size_after(line, "total mem size : "),
        ..Oom::device(Engine::Mindspore, Source::Allocator)
    }
}

/// On a CPU it writes the same without naming a device.
fn mindspore(body: &str) -> Oom {
    let requested = size_after_any(body, &["alloc size: ", "alloc size:"]);
    let device = number_after(body, "Device(id:");
    let names_device = has_any(body, &["Device(id:", "Device memory"]);
    let base = if names_device {
        Oom::device(Engine::Mindspore, Source::Allocator)
    } else {
        Oom::host(Engine::Mindspore, Source::Allocator)
    };
    Oom { requested, device, ..base }
}
