//! Messages of programs that have one or two each: engine, place, certainty and the request.

use lowtide_core::Bytes;
use lowtide_oom::Certainty::{Likely, Possible, Sure};
use lowtide_oom::Engine;
use lowtide_oom::Place::{Device, Host};
use lowtide_oom::read;

use crate::kit::check;

#[test]
fn attention_that_reckons_before_it_asks_is_of_the_card() {
    let words = "RuntimeError: Not enough memory, use lower resolution (max approx. 448x448). Need: 1.9GB free, Have:1.2GB free";
    let oom = check(words, Engine::PyTorch, Device, Likely, Some(2_040_109_466));
    assert_eq!(oom.free, Some(Bytes(1_288_490_189)));
    let zero = words.replace("1.9", "0.0").replace("1.2", "0.0");
    assert_eq!(check(&zero, Engine::PyTorch, Device, Likely, None).free, None);
}

#[test]
fn messages_of_single_programs() {
    check(
        "Caused by: java.lang.RuntimeException: Failed to allocate 10486784 bytes from DEVICE [0] memory",
        Engine::Java,
        Device,
        Sure,
        Some(10_486_784),
    );
    check(
        "[19:03:47] src/storage/./pooled_storage_manager.h:62: Memory allocation failed.",
        Engine::Mxnet,
        Device,
        Sure,
        None,
    );
    check(
        "[E] [TRT] safeRuntime.cpp (25) - Cuda Error in nvinfer1::internal::DefaultAllocator::allocate: 2 (out of memory)\n\
         [E] [TRT] Requested amount of memory (1073741824 bytes) could not be allocated.",
        Engine::Cuda,
        Device,
        Likely,
        Some(1 << 30),
    );
    let skipped = "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)\n\
                   [TRT] [W] Skipping tactic 8 due to insufficient memory on requested size of 17179869184 detected.";
    assert_eq!(read(skipped), None);
    let asked = "[2024-01-02 03:04:05 +0000] [1] [ERROR] Worker (pid:7) was sent SIGKILL! Perhaps out of memory?";
    check(asked, Engine::Unknown, Host, Possible, None);
    let early = "earlyoom[26328]: sending SIGTERM to process 63745 uid 1000 \"python3\": badness 748, VmRSS 5384 MiB";
    let victim = &check(early, Engine::Linux, Host, Sure, None).processes[0];
    assert_eq!(
        (victim.pid, victim.name.as_deref(), victim.used),
        (63745, Some("python3"), Some(Bytes::from_mib(5384)))
    );
    check(
        "Error: Model loading was stopped due to insufficient system resources. This model requires approximately 15.00 GB of \
         memory",
        Engine::Ggml,
        Host,
        Sure,
        Some(15 << 30),
    );
    check("error loading model: unable to allocate Vulkan0 buffer", Engine::Ggml, Device, Sure, None);
    check(
        "Failed to allocate memory for batch_prefill_tmp_v with size 435814400 and alignment 16 in AlignedAllocator",
        Engine::Unknown,
        Device,
        Likely,
        Some(435_814_400),
    );
    check(
        "ERROR [engine.py:82] Memory_Allocation_Failure(EL0004): Failed to allocate memory requested by GE module.\n\
         ERROR [engine.py:82] Call rtMalloc fail, type = 2, size:3221291008, device_id:0[FUNC:Alloc]",
        Engine::Unknown,
        Device,
        Sure,
        Some(3_221_291_008),
    );
    check("RuntimeError: No executable batch size found, reached zero.", Engine::PyTorch, Device, Likely, None);
    check(
        "GpuArena fail to allocate memory 100663296 bytes!! Result = 2",
        Engine::Unknown,
        Device,
        Possible,
        Some(96 << 20),
    );
    assert_eq!(read("Could not allocate 512 MB for the cache, falling back to 256 MB"), None);
    check("> out of memory", Engine::Unknown, Host, Possible, None);
    let pool = "memory_pool/stack_like_memory_pool.h:303: Error: Out of memory. Requested 8880 MB; Free 5902.061425 MB";
    let pool = check(pool, Engine::Unknown, Device, Sure, Some(8880 << 20));
    assert_eq!(pool.free.map(|free| free.get() >> 20), Some(5902));
    check("  what():  Memory Object Allocation Failure", Engine::Oneapi, Device, Likely, None);
    check("InternalError: Dst tensor is not initialized.", Engine::Tensorflow, Device, Likely, None);
    check("\tlast exit reason = OS_REASON_JETSAM", Engine::Unknown, Host, Sure, None);
    check("MemoryError: bad allocation: cudaErrorMemoryAllocation: out of memory", Engine::Rmm, Device, Sure, None);
}

#[test]
fn servers_and_libraries_say_it_in_short() {
    let ascend = "RuntimeError: Malloc device memory failed, size[32212254720], ret[207001], Device 6 Available HBM size:34359738368 \
                  free size:33889886208";
    let oom = check(ascend, Engine::Mindspore, Device, Sure, Some(32_212_254_720));
    assert_eq!(
        (oom.device, oom.capacity, oom.free),
        (Some(6), Some(Bytes(34_359_738_368)), Some(Bytes(33_889_886_208)))
    );
    check("RuntimeError: No enough gpu memory for runtime.", Engine::Unknown, Device, Sure, None);
    let opencl = "pyopencl._cl.RuntimeError: clEnqueueReadBuffer failed: OUT_OF_RESOURCES";
    check(opencl, Engine::Oneapi, Device, Possible, None);
    check("NCCL WARN Failed to CUDA host alloc 1048576 bytes", Engine::Cuda, Host, Sure, Some(1 << 20));
    check("RMM failure at:/rmm/mr/device/pool.hpp:196: Maximum pool size exceeded", Engine::Rmm, Device, Sure, None);
    let ollama = "Error: 500 Internal Server Error: unable to allocate CUDA0 buffer";
    check(ollama, Engine::Ggml, Device, Sure, None);
    check("CUDA error: Out of memory in cuMemAlloc(&device_pointer, size)", Engine::Unknown, Device, Sure, None);
    check("System is out of GPU memory", Engine::Unknown, Device, Sure, None);
    let onnx =
        r"onnxruntime\core\providers\dml\a.cpp(1) 8007000E Not enough memory resources are available to complete this.";
    check(onnx, Engine::OnnxRuntime, Device, Sure, None);
    let host = "cuda_driver.cc:890] failed to alloc 17179869184 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory";
    check(host, Engine::Cuda, Host, Sure, None);
    for old in ["resource allocation failed at THCGeneral.cpp:333", "library not initialized at THCGeneral.cpp:405"] {
        check(&format!("RuntimeError: cublas runtime error : {old}"), Engine::Cuda, Device, Possible, None);
    }
    check("CUDA error 2 at ggml-cuda.cu:4883", Engine::Cuda, Device, Sure, None);
    let matlab = "Out of memory on device. To view more detail about available memory on the GPU, use 'gpuDevice()'.";
    check(matlab, Engine::Matlab, Device, Sure, None);
    check("WebGL: OUT_OF_MEMORY: texImage2D: out of memory", Engine::Unknown, Device, Possible, None);
    let encoder = "[h264_nvenc @ 0x55d0] OpenEncodeSessionEx failed: out of memory (10): (no details)";
    check(encoder, Engine::Unknown, Device, Possible, None);
    let clickhouse = "(total) memory limit exceeded: would use 2.00 GiB (attempt to allocate chunk of 4096 bytes), maximum: 1.00 GiB";
    assert_eq!(check(clickhouse, Engine::Unknown, Host, Sure, Some(4096)).limit, Some(Bytes(1 << 30)));
    let builder = "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (Requested size was 2147483648 \
                   bytes.)";
    check(builder, Engine::Cuda, Device, Likely, Some(2 << 30));
}

#[test]
fn what_failed_by_it_is_no_doubt() {
    for text in ["GPU worker could not start, CUDA out of memory", "Model can not be loaded, CUDA out of memory"] {
        check(text, Engine::PyTorch, Device, Likely, None);
    }
    check("ERROR: could not create process, cannot allocate memory", Engine::Linux, Host, Sure, None);
}
