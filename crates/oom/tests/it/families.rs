//! More messages of each family, made from the engines' formats (not quotes): engine, place, certainty and the request.

use lowtide_oom::Certainty::{Likely, Possible, Slight, Sure};
use lowtide_oom::Engine;
use lowtide_oom::Place::{Device, Host};
use lowtide_oom::{DeviceKind, Source, read};

use crate::kit::check;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn what_a_run_says_is_a_report_whoever_is_asked() {
    let told = "Did you use it with 3B? When I run your code it says \"RuntimeError: CUDA out of memory. Tried to allocate 46.00 MiB \
                (GPU 0; 39.59 GiB total capacity; 37.66 GiB already allocated; 45.19 MiB free; 37.70 GiB reserved in total by PyTorch)\".";
    check(told, Engine::PyTorch, Device, Sure, Some(46 * MIB));
}

#[test]
fn caching_allocators() {
    let oom = check(
        "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 1; 10.92 GiB total capacity; 8.57 GiB already allocated; 9.28 MiB free; 4.50 MiB cached)",
        Engine::PyTorch,
        Device,
        Sure,
        Some(12 * MIB + MIB / 2),
    );
    assert_eq!(oom.reserved_unallocated.map(|bytes| bytes.get()), Some(4 * MIB + MIB / 2));
    assert_eq!(oom.device, Some(1));

    // Quoted by who met it, in a sentence that sounds like a condition.
    let oom = check(
        "When executing my code, I keep getting the message \"CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 15.00 GiB total capacity; 14.00 GiB already allocated; 210.75 MiB free; 14.25 GiB reserved in total by PyTorch)\".",
        Engine::PyTorch,
        Device,
        Sure,
        Some(3 << 30),
    );
    assert_eq!(oom.capacity.map(|bytes| bytes.get()), Some(15 << 30));

    let oom = check(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 1.00 GiB already allocated; 5.00 GiB free; 2.00 GiB allowed; 1.50 GiB reserved in total by PyTorch)",
        Engine::PyTorch,
        Device,
        Sure,
        Some(2 * GIB),
    );
    assert_eq!(oom.limit.map(|bytes| bytes.get()), Some(2 * GIB));
    assert_eq!(oom.free.map(|bytes| bytes.get()), Some(5 * GIB));

    let oom = check(
        "torch.OutOfMemoryError: MUSA out of memory. Tried to allocate 1.00 GiB. GPU 2 has a total capacity of 48.00 GiB of which 0 bytes is free. Process 7 has 1.00 GiB memory in use. Process 8 has 3.00 GiB memory in use. Including non-PyTorch memory, this process has 44.00 GiB memory in use. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 512 bytes is reserved by PyTorch but unallocated.",
        Engine::PyTorch,
        Device,
        Sure,
        Some(GIB),
    );
    assert_eq!(oom.device_kind, Some(DeviceKind::Musa));
    assert_eq!(oom.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(oom.in_use.map(|bytes| bytes.get()), Some(44 * GIB));

    let oom = check(
        "CPU out of memory. Tried to allocate 20.00 MiB. CPU 0 has a total capacity of 23.50 GiB of which 20.00 GiB is free. 512.00 MiB allowed; Of the allocated memory 500.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
        Engine::PyTorch,
        Host,
        Sure,
        Some(20 * MIB),
    );
    assert_eq!(oom.device_kind, Some(DeviceKind::Cpu));
    assert_eq!(oom.limit.map(|bytes| bytes.get()), Some(512 * MIB));

    check(
        "torch.OutOfMemoryError: CUDA allocation preemptively rejected on device 0 by throw_on_cudamalloc_oom. Requested size: 3.00 GiB",
        Engine::PyTorch,
        Device,
        Sure,
        Some(3 * GIB),
    );
    let oom = check(
        "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 28.00 GiB\nRequested               : 7.00 GiB\nDevice limit            : 31.00 GiB\nFree (according to CUDA): 29.00 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
        Engine::PyTorch,
        Device,
        Sure,
        Some(7 * GIB),
    );
    assert_eq!((oom.limit, oom.free.map(|bytes| bytes.get())), (None, Some(29 * MIB)));
    check(
        "MPS backend out of memory (MPS allocated: 9.00 GiB, other allocations: 464.00 KiB, max allowed: 9.00 GiB). Tried to allocate 1024.00 MiB on shared pool.",
        Engine::PyTorch,
        Device,
        Sure,
        Some(GIB),
    );
    check("torch.cuda.OutOfMemoryError", Engine::PyTorch, Device, Sure, None);
    check("torch.OutOfMemoryError: Allocation on device ", Engine::PyTorch, Device, Sure, None);
    check("Allocation on device ", Engine::Cuda, Device, Possible, None);
}

#[test]
fn short_reports() {
    check("GPU 0 ran out of memory, skipping batch", Engine::Unknown, Device, Possible, None);
    check("RuntimeError: out of memory", Engine::Unknown, Device, Possible, None);
    check("RuntimeError: Triton Error [CUDA]: out of memory", Engine::Cuda, Device, Sure, None);
    check("OutOfMemoryError: Allocation on device", Engine::PyTorch, Device, Possible, None);
    check(
        "fatal: Out of memory, malloc failed (tried to allocate 1048576 bytes)",
        Engine::Unknown,
        Host,
        Possible,
        Some(MIB),
    );
    check(
        "2026-05-01 ERROR: CUDA out of memory caught, reducing batch size to 8",
        Engine::PyTorch,
        Device,
        Likely,
        None,
    );
    check("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: TPU backend error", Engine::Xla, Device, Likely, None);
    check(
        "MemoryError: Unable to allocate array with shape (1024, 1024) and data type float64",
        Engine::Numpy,
        Host,
        Sure,
        Some(8 * MIB),
    );
    check(
        "RuntimeError: $ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM!",
        Engine::PyTorch,
        Host,
        Sure,
        Some(12 * GIB),
    );
    check(
        "node_manager.cc:3040: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
        Engine::Ray,
        Host,
        Sure,
        None,
    );
}

#[test]
fn pytorch_on_the_cpu() {
    check(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes.",
        Engine::PyTorch,
        Host,
        Sure,
        Some(4096),
    );
    check(
        "RuntimeError: unable to mmap 1048576 bytes from file </torch_12_3_4>: Cannot allocate memory (12)",
        Engine::PyTorch,
        Host,
        Likely,
        Some(MIB),
    );
    check(
        "RuntimeError: unable to write to file </torch_12_3>: No space left on device (28)",
        Engine::PyTorch,
        Host,
        Likely,
        None,
    );
    check(
        "F0707 02:08:35.6  9679 syncedmem.hpp:27] Check failed: *ptr host allocation of size 141386560 failed",
        Engine::Unknown,
        Host,
        Sure,
        Some(141_386_560),
    );
    // Cut short by who posts it.
    check("`enforce fail at CPUAllocator.cpp` in the evaluation", Engine::PyTorch, Host, Possible, None);
    let unexplained = "RuntimeError: unable to open shared memory object </torch_16550_87> in read-write mode";
    check(unexplained, Engine::PyTorch, Host, Slight, None);
    let misspelt = "bus error, insufficient shared memery (shm)";
    let hit = lowtide_oom::scan_post(misspelt.as_bytes()).next().expect("people type it");
    assert_eq!((hit.oom.source, hit.oom.certainty), (Source::SharedMemory, Likely));
    let shortened = "'dataloader's workers are out of shared memory'";
    let hit = lowtide_oom::scan_post(shortened.as_bytes()).next().expect("a post is searched for it");
    assert_eq!((hit.oom.source, hit.oom.certainty), (Source::SharedMemory, Likely));
    // The title of an issue has its number behind it.
    check(&format!("{unexplained} #103"), Engine::PyTorch, Host, Slight, None);
    assert_eq!(read(&format!("{unexplained}: Too many open files (24)")), None);
}

#[test]
fn drivers_and_libraries() {
    check("RuntimeError: CUDA driver error: out of memory", Engine::Cuda, Device, Sure, None);
    let call = |name: &str| {
        format!("Error while calling {name}(&data, size) in file gpu.cpp:185. code: 2, reason: out of memory")
    };
    check(&call("cudaMalloc"), Engine::Cuda, Device, Sure, None);
    // Pinned memory is the machine's.
    check(&call("cudaMallocHost"), Engine::Cuda, Host, Sure, None);
    check("torch.AcceleratorError: CUDA error: out of memory", Engine::Cuda, Device, Sure, None);
    check(
        "F0911 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory",
        Engine::Cuda,
        Device,
        Sure,
        None,
    );
    check(
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        Engine::Rmm,
        Device,
        Sure,
        None,
    );
    check("terminate called after throwing an instance of 'rmm::out_of_memory'", Engine::Rmm, Device, Sure, None);
    check(
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /opt/include/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory",
        Engine::Rmm,
        Device,
        Sure,
        None,
    );
    check(
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled cuda error, NCCL version 2.19.3 ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 'out of memory'",
        Engine::Cuda,
        Device,
        Sure,
        None,
    );
    check(
        "node1:12:34 [0] include/shm.h:40 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-X (size 9637888)",
        Engine::Cuda,
        Host,
        Likely,
        Some(9_637_888),
    );
    check("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", Engine::Cuda, Device, Slight, None);
    check(
        "RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        Engine::Cuda,
        Device,
        Likely,
        None,
    );
    check("RuntimeError: HIP error: out of memory", Engine::Rocm, Device, Sure, None);
    check("hipErrorOutOfMemory", Engine::Rocm, Device, Sure, None);
    check(
        "RuntimeError: UR backend failed. UR backend returns:39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        Engine::Oneapi,
        Device,
        Sure,
        None,
    );
    check("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", Engine::Vulkan, Device, Sure, None);
    check(
        "Error an illegal state: cudaErrorMemoryAllocation (error 2) due to out of memory on CUDA API call to cudaMalloc",
        Engine::Cuda,
        Device,
        Sure,
        None,
    );
    check("cudaHostAlloc failed: CUDA error: out of memory", Engine::Cuda, Host, Sure, None);
}

#[test]
fn other_engines_on_the_device() {
    let tensor = "ResourceExhaustedError: OOM when allocating tensor with shape[32,128,1024] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc";
    assert_eq!(check(tensor, Engine::Tensorflow, Device, Sure, Some(16 * MIB)).device, Some(1));
    check(
        "OOM when allocating tensor with shape[1024,1024] and type double on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        Engine::Tensorflow,
        Host,
        Sure,
        Some(8 * MIB),
    );
    let bare = "OOM when allocating tensor with shape[1,1080,1920,3]\n\t [[Node: ToFloat = Cast[DstT=DT_FLOAT, _device=\"/job:localhost/replica:0/task:0/device:CPU:0\"](x)]]";
    check(bare, Engine::Tensorflow, Host, Sure, None);
    let node_on_card = bare.replace("CPU:0", "GPU:0");
    let received = "\n\t [[Node: a = _Recv[client_terminated=false, recv_device=\"/cpu:0\", _device=\"/cpu:0\"]()]]";
    check(&format!("{node_on_card}{received}"), Engine::Tensorflow, Device, Sure, None);
    check(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483649B) on device ordinal 0",
        Engine::Xla,
        Device,
        Sure,
        Some(2 * GIB + 1),
    );
    let hbm = check(
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.00G of 16.00G hbm. Exceeded hbm capacity by 4.00G.",
        Engine::Xla,
        Device,
        Sure,
        Some(20 * GIB),
    );
    assert_eq!(hbm.capacity.map(|bytes| bytes.get()), Some(16 * GIB));
    check("RESOURCE_EXHAUSTED: Out of memory allocating 1073741824 bytes.", Engine::Xla, Device, Sure, Some(GIB));
    let cupy = check(
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,000 bytes (allocated so far: 2,000 bytes, limit set to: 2,500 bytes).",
        Engine::Cupy,
        Device,
        Sure,
        Some(1000),
    );
    assert_eq!(
        (cupy.allocated.map(|bytes| bytes.get()), cupy.limit.map(|bytes| bytes.get())),
        (Some(2000), Some(2500))
    );
    check(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1234.00 MiB on device 0: cudaMalloc failed: out of memory",
        Engine::Ggml,
        Device,
        Sure,
        Some(1234 * MIB),
    );
    check(
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 5766184960",
        Engine::Ggml,
        Device,
        Sure,
        Some(5_766_184_960),
    );
    check(
        "ggml_aligned_malloc: insufficient memory (attempted to allocate 100.00 MB)",
        Engine::Ggml,
        Host,
        Sure,
        Some(100 * MIB),
    );
    check("ggml_vulkan: Device memory allocation of size 1073741824 failed.", Engine::Ggml, Device, Sure, Some(GIB));
    let paddle = check(
        "ResourceExhaustedError:\n\nOut of memory error on GPU 0. Cannot allocate 1.953125GB memory on GPU 0, 10.750000GB memory has been allocated and available memory is only 0.250000GB.",
        Engine::Paddle,
        Device,
        Sure,
        Some(2_097_152_000),
    );
    assert_eq!(
        (paddle.used.map(|bytes| bytes.get()), paddle.free.map(|bytes| bytes.get())),
        (Some(43 * GIB / 4), Some(GIB / 4))
    );
    check(
        "mxnet.base.MXNetError: src/storage/./pooled_storage_manager.h:161: cudaMalloc retry failed: out of memory",
        Engine::Mxnet,
        Device,
        Sure,
        None,
    );
    check(
        "Device(id:0) memory isn't enough and alloc failed, kernel name: Default/network-1, alloc size: 4096B.",
        Engine::Mindspore,
        Device,
        Sure,
        Some(4096),
    );
    check(
        "[E:onnxruntime:, sequential_executor.cc:494] /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1048576",
        Engine::OnnxRuntime,
        Device,
        Likely,
        Some(MIB),
    );
    check(
        "[metal::malloc] Attempting to allocate 4294967296 bytes which is greater than the maximum allowed buffer size of 2147483648 bytes.",
        Engine::Mlx,
        Device,
        Sure,
        Some(4 * GIB),
    );
    check(
        "wgpu error: Validation Error\n\nCaused by:\n  In Device::create_buffer\n    Not enough memory left.",
        Engine::Wgpu,
        Device,
        Sure,
        None,
    );
    check("out of device memory allocating 2048 bytes", Engine::Burn, Device, Sure, Some(2048));
    check("| WARNING: ran out of memory with exception: CUDA out of memory", Engine::PyTorch, Device, Likely, None);
}

#[test]
fn sources_of_the_device_name_it() {
    let thrust = "  what():  /build/xgboost/src/common/device_helpers.cuh(211): out of memory";
    check(thrust, Engine::Rmm, Device, Likely, None);
    let check_failed =
        "  what():  [10:11:12] mshadow/./stream_gpu-inl.h:198: Check failed: e == cudaSuccess CUDA: out of memory";
    check(check_failed, Engine::Mxnet, Device, Sure, None);
    let status = "ERROR: LoadError: CUDA error: out of memory (code #2, ERROR_OUT_OF_MEMORY)";
    let oom = check(status, Engine::Julia, Device, Sure, None);
    assert_eq!(oom.source, Source::Runtime);
    check("Error out of memory at line 31 in file /build/csrc/ops.cu", Engine::Cuda, Device, Likely, None);
    check("  what():  std::bad_alloc: out of memory", Engine::Rmm, Device, Sure, None);
    check("fatal: out of memory in kernels/scan.cu", Engine::Unknown, Device, Possible, None);
}

#[test]
fn killers_and_schedulers() {
    let killed = check(
        "[12.3] Out of memory: Killed process 321 (python3) total-vm:100kB, anon-rss:40kB, file-rss:8kB, shmem-rss:2kB, UID:0",
        Engine::Linux,
        Host,
        Sure,
        None,
    );
    assert_eq!(killed.source, Source::Kernel);
    assert_eq!(killed.processes[0].used.map(|bytes| bytes.get()), Some(50 << 10));
    let kill = check(
        "kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/y,task=python,pid=77,uid=0",
        Engine::Linux,
        Host,
        Sure,
        None,
    );
    assert_eq!(
        (kill.source, kill.processes[0].pid, kill.processes[0].name.as_deref()),
        (Source::Cgroup, 77, Some("python"))
    );
    let report = "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0";
    assert_eq!(check(report, Engine::Linux, Host, Sure, None).source, Source::Kernel);
    let of_group = format!("{report}\nmemory: usage 8388608kB, limit 8388608kB, failcnt 12\n");
    assert_eq!(check(&of_group, Engine::Linux, Host, Sure, None).source, Source::Cgroup);
    check(
        "oom_reaper: reaped process 321 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        Engine::Linux,
        Host,
        Sure,
        None,
    );
    check(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.",
        Engine::Slurm,
        Host,
        Sure,
        None,
    );
    check("State: OUT_OF_MEMORY (exit code 0)", Engine::Slurm, Host, Sure, None);
    check("slurmstepd: error: Exceeded step memory limit at some point.", Engine::Slurm, Host, Sure, None);
    let step = check(
        "slurmstepd: error: StepId=12.0 exceeded memory limit (2097152 > 1048576), being killed",
        Engine::Slurm,
        Host,
        Sure,
        None,
    );
    assert_eq!(step.limit.map(|bytes| bytes.get()), Some(MIB));
    check("    Reason:       OOMKilled\n    Exit Code:    137", Engine::Kubernetes, Host, Sure, None);
    let ray = check(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1, ID: e5) where the task (task ID: 43, name=load, pid=11362, memory used=1.25GB) was running was 27.00GB / 28.00GB (0.964), which exceeds the memory usage threshold of 0.95.",
        Engine::Ray,
        Host,
        Sure,
        None,
    );
    assert_eq!(
        (ray.used.map(|bytes| bytes.get()), ray.capacity.map(|bytes| bytes.get())),
        (Some(27 * GIB), Some(28 * GIB))
    );
    assert_eq!((ray.processes[0].pid, ray.processes[0].name.as_deref()), (11362, Some("load")));
    let pbs = check("=>> PBS: job killed: mem 2048kb exceeded limit 1024kb", Engine::Pbs, Host, Sure, None);
    assert_eq!((pbs.in_use.map(|bytes| bytes.get()), pbs.limit.map(|bytes| bytes.get())), (Some(2 * MIB), Some(MIB)));
    check("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", Engine::Lsf, Host, Sure, None);
    check(
        "Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB physical memory used.",
        Engine::Spark,
        Host,
        Sure,
        None,
    );
    check(
        "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting",
        Engine::Dask,
        Host,
        Sure,
        None,
    );
}

#[test]
fn condor_holds_and_kills() {
    let text = "Error from slot1@node: Job has gone over cgroup memory limit of 2048 megabytes. Last measured usage: 1900 megabytes.";
    let oom = check(text, Engine::Condor, Host, Sure, None);
    assert_eq!(oom.limit.map(|bytes| bytes.get()), Some(2048 * MIB));
    let held = "12.0  me  11/7  23:48 Job in status 2 put on hold by SYSTEM_PERIODIC_HOLD due to memory usage 3000000.";
    let killed = "ERROR:Retry Job killed by HTCondor due to excessive memory use (RSS=2250 MB). Will not retry it.";
    for text in [held, killed] {
        check(text, Engine::Condor, Host, Sure, None);
    }
    assert_eq!(read("Job 12 was put on hold by its owner"), None);
}

#[test]
fn containers_of_clouds() {
    for text in [
        "OutOfMemoryError: Container killed due to memory usage",
        "[INFO] DockerGoClient: process within container 12ab (name: \"train\") died due to OOM",
        "The replica workerpool0-0 ran out-of-memory and exited with a non-zero status of 137(SIGKILL).",
    ] {
        let oom = check(text, Engine::Kubernetes, Host, Sure, None);
        assert_eq!(oom.source, Source::Cgroup, "{text}");
    }
    let oom = check("Memory limit of 512 MiB exceeded with 515 MiB used.", Engine::Kubernetes, Host, Sure, None);
    assert_eq!(oom.limit.zip(oom.in_use).map(|(limit, used)| (limit.get(), used.get())), Some((512 * MIB, 515 * MIB)));
    let signal = "CRITICAL - Process terminated by signal: signal=-9: signal_name=\"SIGKILL\": source=\"task\"";
    check(signal, Engine::Unknown, Host, Slight, None);
    check("The replica master 0 exited with a non-zero status of 9(SIGKILL).", Engine::Unknown, Host, Slight, None);
    assert_eq!(read("The replica master 0 exited with a non-zero status of 1. Termination reason: Error."), None);
}

#[test]
fn python_errors_of_a_driver_are_of_the_device() {
    check("MemoryError: cuMemAlloc failed: out of memory", Engine::Unknown, Device, Likely, None);
    check(
        "MemoryError: Cannot allocate 4096 bytes: no memory is available.",
        Engine::Unknown,
        Device,
        Likely,
        Some(4096),
    );
    check("MemoryError: Metal OOM while allocating size=4096", Engine::Unknown, Device, Likely, Some(4096));
    let pool = "ERROR: out of memory in /build/src/acc/cuda/custom_allocator.cuh at line 436 (error-code 2)";
    check(pool, Engine::Unknown, Device, Likely, None);
}

#[test]
fn neuron_names_its_device() {
    let text = "[TDRV:dmem_alloc] Failed to alloc DEVICE memory: 4194304";
    check(text, Engine::Unknown, Device, Likely, Some(4 * MIB));
    let text = "RuntimeError: nrt_load_collectives status=4 message=\"Allocation Failure\"";
    check(text, Engine::Unknown, Device, Likely, None);
}

#[test]
fn graphcore_names_its_tiles() {
    for line in [
        "Memory allocation error : Out of memory on tile 0: 876476 bytes used but tiles only have 638976 bytes of memory",
        "Out of memory: Cannot fit all variable data onto one or more tiles.",
        "'poplar_stream_memory_allocation_error': irlowering.cpp:3516 Out of memory. Single stream of length 149766584",
        "poplar.graph_memory_allocation_error: see the profile",
    ] {
        let oom = lowtide_oom::scan_post(line.as_bytes()).next().unwrap_or_else(|| panic!("{line}")).oom;
        assert_eq!((oom.place, oom.certainty, oom.device_kind), (Device, Likely, Some(DeviceKind::Other)), "{line}");
    }
}

#[test]
fn a_tpu_tells_what_it_has_in_lines_of_its_own() {
    let oom = check(
        "Attempting to reserve 3.00G at the bottom of memory. That was not possible. There are 1.00G free.;\nHBM capacity 8.00G:\n",
        Engine::Xla,
        Device,
        Sure,
        Some(3 << 30),
    );
    assert_eq!(oom.capacity.map(lowtide_core::Bytes::get), Some(8 << 30));
}

#[test]
fn lm_studio_hands_on_the_last_line() {
    let line = "Failed to initialize the context: failed to allocate compute pp buffers";
    check(line, Engine::Ggml, Device, Sure, None);
}

#[test]
fn paddle_fluid_gives_two_figures() {
    let line = "paddle.fluid.core.EnforceNotMet: enforce allocating <= available failed, 4096 > 1024";
    let oom = check(line, Engine::Paddle, Device, Sure, Some(4096));
    assert_eq!(oom.free.map(lowtide_core::Bytes::get), Some(1024));
}
