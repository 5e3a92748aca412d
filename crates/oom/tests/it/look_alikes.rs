//! Text that is no out-of-memory error, and what it is instead.

use lowtide_oom::LookAlike::{self, *};
use lowtide_oom::{look_alike, read};

fn check(text: &str, expected: Option<LookAlike>) {
    assert_eq!(read(text), None, "{text}");
    assert_eq!(look_alike(text), expected, "{text}");
}

#[test]
fn other_errors() {
    check(
        "tensorflow with \"Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB with freed_by_count=0.\"",
        Some(Attempt),
    );
    check(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 18446744073709551000 bytes. Error code 12 (Cannot allocate memory)",
        Some(CorruptedSize),
    );
    check("memory allocation of 18446744073709551615 bytes failed", Some(CorruptedSize));
    check(
        "MemoryError: Unable to allocate 8.00 EiB for an array with shape (1152921504606846976,) and data type float64",
        Some(CorruptedSize),
    );
    check("ValueError: Maximum allowed dimension exceeded", Some(CorruptedSize));
    check(
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
        Some(KernelResources),
    );
    check("RuntimeError: CUDA error: too many resources requested for launch", Some(KernelResources));
    check(
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 17.00M of 16.00M vmem.",
        Some(KernelResources),
    );
    check(
        "Out of Memory: Not enough space to allocate 4096 B L1 buffer across 64 banks, where each bank needs to store 64 B",
        Some(KernelResources),
    );
    check(
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean",
        Some(Attempt),
    );
    check(
        "WARNING: [TRT]: Skipping tactic 3 due to insufficient memory on requested size of 4294967296 detected for tactic 0x4.",
        Some(Attempt),
    );
    check("ggml_cuda_host_malloc: failed to allocate 512.00 MiB of pinned memory: out of memory", Some(Attempt));
    let choice =
        "E1201 10:00:01.0 411 torch/_inductor/select_algorithm.py:2100] CUDA out of memory. Tried to allocate 2.00 GiB";
    check(&format!("{choice}. while benchmarking choice mm; ignoring this choice"), Some(Attempt));
    check(
        &format!("{choice}. \n{} Ignoring this choice.", &choice[..choice.find(']').expect("it is there") + 1]),
        Some(Mentioned),
    );
    check("warning: failed to munlock buffer: Cannot allocate memory", Some(Attempt));
    check(
        "warning: failed to mlock 4096-byte buffer (after previously locking 0 bytes): Cannot allocate memory",
        Some(Attempt),
    );
    check("OSError: [Errno 28] No space left on device", Some(DiskFull));
    check("RuntimeError: CUDA error: an illegal memory access was encountered", Some(IllegalAccess));
    check("OSError: [Errno 24] Too many open files", Some(FileLimit));
    check("RecursionError: maximum recursion depth exceeded", Some(StackOverflow));
    check("grpc: RESOURCE_EXHAUSTED: Received message larger than max (5000000 vs. 4194304)", Some(Quota));
    check("ImportError: libgomp.so.1: cannot allocate memory in static TLS block", Some(StaticThreadStorage));
    check("RuntimeError: CUDA error: invalid configuration argument", Some(InvalidArgument));
    check("RuntimeError: CUDA error: invalid device ordinal", Some(InvalidArgument));
    check("IndexError: index 50304 is out of range", None);
    check("DataLoader worker (pid 7) is killed by signal: Segmentation fault.", Some(IllegalAccess));
    check("DataLoader worker (pid 7) is killed by signal: Terminated.", None);
    check("Job 12 finished, exit code 1370", None);
    check("step 137: loss -9.0", None);
}

#[test]
fn talk() {
    for text in [
        "It gives \"RuntimeError: CUDNN_STATUS_EXECUTION_FAILED\". Am I out of memory here, or is it some other error?",
        "    except torch.cuda.OutOfMemoryError:",
        "[rank0]:     raise torch.OutOfMemoryError(\"CUDA out of memory\")",
        "    if \"out of memory\" in str(error):",
        "To avoid CUDA out of memory errors, reduce the batch size",
        "When you see \"CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 15.00 GiB total capacity)\", lower the batch size.",
        "Use gradient checkpointing if you run out of memory.",
        "out_of_memory_retries: 3",
        "Out of memory: 0 times so far",
        "throw_on_cudamalloc_oom:True, out_of_memory_action=skip",
        "0 out of memory events so far: no out of memory",
        "oom handling: out-of-memory recovery enabled",
        "from torch.cuda import OutOfMemoryError",
        "INFO: memory-efficient attention prevents out of memory on long inputs",
        "2b77d01 Handle exit code 137 from the launcher",
        "A restart when the exit status is 137, see the manual",
        "see also CUDA out of memory #4512",
        "71aa0f3 Retry on torch.cuda.OutOfMemoryError",
        "RuntimeError: CUDA out of memory means the driver refused a block",
        "- name: PodOOMKilled",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
    check("\"OOMKilled\": false,", None);
    check("Sending process 123 closing signal SIGKILL", None);
    check("[step 1000] memory: device 1.21/3.50 GiB", None);
}

#[test]
fn names_of_errors_in_lists_settings_and_sources() {
    for text in [
        "restarts: 0, OOMKilled: 0",
        "retryOn: [OOMKilled, Evicted]",
        "INFO no container of the job was OOMKilled",
        "{\"State\": \"running\", \"OOMKilled\": null}",
        "sacct -S now-1days --state=FAILED,OUT_OF_MEMORY,TIMEOUT --format=JobID,State",
        "job states considered failed: BOOT_FAIL, CANCELLED, NODE_FAIL, OUT_OF_MEMORY, PREEMPTED, TIMEOUT",
        "leading to the risk of getting a process \"OOM-killed\".",
        "retry_on: MemoryError",
        "      ├── MemoryError",
        "      +-- MemoryError",
        "       ENOMEM Insufficient kernel memory was available.",
        "retryable_errno: EAGAIN, ENOMEM, EINTR",
        "| **ENOMEM** | the system has no memory |",
        "main.cpp:(.text+0x1c): undefined reference to `typeinfo for std::bad_alloc'",
        "warning: an exception of type 'std::bad_alloc' may be thrown in function 'run' which should not throw",
        "error: use of undeclared identifier 'CUDA_ERROR_OUT_OF_MEMORY'",
        "src/a.cu(12): error: identifier \"cudaErrorMemoryAllocation\" is undefined",
        "driver_types.h:270: note: cudaErrorMemoryAllocation = 2,",
        "hipify: cudaErrorMemoryAllocation -> hipErrorOutOfMemory",
        "MoltenVK: enum VK_ERROR_OUT_OF_DEVICE_MEMORY = -2",
        "[node-1] JVM arguments [-Xms1g, -XX:+HeapDumpOnOutOfMemoryError, -XX:ErrorFile=logs/hs_err.log]",
        "java -XX:+ExitOnOutOfMemoryError -jar trino.jar failed to start: port in use",
        "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0 - in org.apache.foo.OutOfMemoryHandlerTest",
        "INFO: heap dump on OutOfMemoryError enabled, fatal signals go to hs_err",
        "Error: the layout of memory is not known",
        "- wifi: wlcore: Return -ENOMEM instead of -EAGAIN if there is not enough",
        "[17804] libc: scandirat fails with ENOMEM because it checks for errno even",
        "       ENOMEM\n              Out of memory.",
        "libc::EINVAL | libc::EAGAIN | libc::ENOMEM => {",
        "Err(io::Error::from(io::ErrorKind::OutOfMemory))",
        "<a id=\"ERR_WORKER_OUT_OF_MEMORY\"></a>",
        "* Units that were killed by systemd-oomd will now have a service result",
        "OOM      Out of Memory Score. The value is used to select the task to kill on error",
        "exclude: [OutOfMemoryError, TimeoutError]",
        "retry_exceptions=(torch.cuda.OutOfMemoryError,)",
        "lastState.terminated.reason != OOMKilled",
        "* `OOMKilled` - the container used more memory than its limit",
        "mmap() shall fail if: ENOMEM",
        "ENOMEM is returned if there is no memory.",
        "std::bad_alloc is thrown when operator new fails",
        "Raises: MemoryError: if the array is too large",
        "    MemoryError: If the request cannot be met.",
        "Supports: VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_DEVICE_LOST",
        "- [Added `OutOfMemory` as a variant of `io::ErrorKind`.][84744]",
        "test result: ok. 12 passed; 0 failed; out of memory tests ignored",
        "INFO trainer: auto_find_batch_size is on, a CUDA out of memory error halves the batch",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn what_others_were_refused() {
    for text in [
        "earlyoom[612]: sending SIGTERM when mem <= 10.00% and swap <= 10.00%,",
        "INFO using all available RAM for the cache",
        "[DEBUG] malloc of size 4096 at 0x7f12aa",
        "ERROR failed to allocate 512 MB of disk space for the download: No space left on device",
        "CUDA error 209 at line 12: no kernel image is available for execution on the device",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
    for (text, kind) in [
        ("Error: 8 RESOURCE_EXHAUSTED: Bandwidth exhausted or memory limit exceeded", Quota),
        ("FailedScheduling: No nodes are available that match all of the predicates: Insufficient memory (3).", Quota),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 147456", KernelResources),
        (
            "RESOURCE_EXHAUSTED: Scoped allocation with size 16.77M exceeded scoped vmem limit by 784.0K",
            KernelResources,
        ),
        ("RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom: size 37.99M and limit 32.00M", KernelResources),
        ("Out of memory. The likely cause is an infinite recursion within the program.", StackOverflow),
        ("ggml_vulkan: Failed to allocate pinned memory (vk::Device::allocateMemory: ErrorOutOfDeviceMemory)", Attempt),
        (
            "ValueError: array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size.",
            CorruptedSize,
        ),
    ] {
        check(text, Some(kind));
    }
    assert_eq!(read("429 RESOURCE_EXHAUSTED: the model bigscience/bloom is overloaded, try again later"), None);
    // Its own quota is of memory: Heroku's.
    assert!(read("Error R15 (Memory quota vastly exceeded)").is_some());
}

#[test]
fn a_sentence_that_goes_on_in_the_next_line_is_one() {
    let prose = "The reader stops when the limit is reached, or it runs\nout of memory while reading the file.";
    assert_eq!(read(prose), None);
    assert!(read("step 12 of the loader\nout of memory\n").is_some());
}

#[test]
fn a_heading_in_the_middle_is_a_comment() {
    let error = "# OSError: [WinError 1455] The paging file is too small for this operation to complete";
    assert_eq!(read(&format!("num_workers: 4\n\n{error}\nnum_workers: 0")), None);
    assert!(read(&format!("{error}\nnum_workers: 0")).is_some());
}
