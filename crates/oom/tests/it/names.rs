//! Names of errors and states: reports of them, and what only names them.

use lowtide_oom::read;

#[test]
fn names_of_jobs_and_pods_hide_no_state() {
    for text in [
        "4242|test|OUT_OF_MEMORY|0:125",
        "4242   test OUT_OF_ME+  0:125",
        "4242|avoid-nan|OUT_OF_MEMORY|0:125",
        "pytorch-test-0   0/1   OOMKilled   0   12m",
        "test   0/1   OOMKilled   0   12m",
        "trainer-if-0 OOMKilled",
        "Job 4242 is OUT_OF_MEMORY",
        "test-train,OOMKilled,137",
    ] {
        assert!(read(text).is_some(), "{text}");
    }
}

#[test]
fn what_was_tried_hides_no_status() {
    for text in [
        "vkAllocateMemory in test scene failed with VK_ERROR_OUT_OF_DEVICE_MEMORY",
        "could not retain CUDA primary context CUDA_ERROR_OUT_OF_MEMORY",
        "Could not create cudnn handle CUDNN_STATUS_ALLOC_FAILED",
        "expected CUDA_SUCCESS but got CUDA_ERROR_OUT_OF_MEMORY",
        "ERROR in test loader std::bad_alloc",
    ] {
        assert!(read(text).is_some(), "{text}");
    }
    for text in [
        "INFO the test may end in OOMKilled",
        "could not reproduce CUDA_ERROR_OUT_OF_MEMORY",
        "It should be checked whether cuInit returned CUDA_ERROR_OUT_OF_MEMORY",
        "add a test for CUDA_ERROR_OUT_OF_MEMORY",
        "If VK_ERROR_OUT_OF_DEVICE_MEMORY is returned, free what is unused",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn a_class_behind_what_a_logger_writes_is_raised() {
    for text in [
        "[2026-11-20 10:00:00.123] [console] [critical] std::bad_alloc",
        "[2026-11-20 10:00:00.123] [console] std::bad_alloc",
        "E1120 10:00:00 1234 main.cc:55] std::bad_alloc",
        "[LightGBM] [Fatal] std::bad_alloc",
        "Unhandled std::bad_alloc",
    ] {
        assert!(read(text).is_some(), "{text}");
    }
    for text in ["[12] std::bad_alloc", "[vtable] std::bad_alloc at offset 16", "typeinfo for std::bad_alloc"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn a_class_behind_a_single_name_is_raised() {
    for text in [
        "worker[3]: MemoryError",
        "2026-11-20 10:00:00 worker2: MemoryError",
        "python3: MemoryError",
        "luigi-interface: MemoryError",
        "loader.py:12: MemoryError",
        "worker 3: MemoryError",
        "WARNING worker_2: MemoryError",
    ] {
        assert!(read(text).is_some(), "{text}");
    }
    for text in [
        "Retry policy: retry on MemoryError",
        "Retry policy: MemoryError",
        "handles MemoryError",
        "retry_on: MemoryError",
        "  exclude: MemoryError",
        "- MemoryError",
        "retry_on = MemoryError",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn a_class_of_a_device_is_an_error_where_it_is_called_one() {
    for text in ["Error: GPUOutOfMemory when allocating 3 GB", "Unhandled HipOutOfMemoryException at 0x123"] {
        assert!(read(text).is_some(), "{text}");
    }
    for text in [
        "java -XX:+ExitOnOutOfMemoryError -jar trino.jar failed to start",
        "Errors: 0 in org.apache.foo.OutOfMemoryHandlerTest",
        "the error GpuOutOfMemoryHandler.on_failure is registered",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}
