//! RAPIDS, Numba, Thrust: C++ `bad_alloc` that means the device.

use crate::message::Message;
use crate::phrase::{has_any, size_after};
use crate::{DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let by_rmm = has_any(line, &["rmm::out_of_memory", "RMM failure", "rmm::bad_alloc", "/rmm/"])
        && has_any(line, &["memory", "bad_alloc", "pool size"]);
    let by_driver = line.contains("bad_alloc")
        && has_any(line, &["CUDA error", "cudaError", "out_of_memory", "thrust::", "bad allocation: out of memory"]);
    let by_numba = line.contains("CudaAPIError") && line.contains("OUT_OF_MEMORY");
    if !by_rmm && !by_driver && !by_numba {
        return None;
    }
    let body = message.body();
    Some(Oom {
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after(body, "failed to allocate ")
            .or_else(|| size_after(body, "failed to allocate: "))
            .or_else(|| size_after(body, "request=")),
        ..Oom::device(Engine::Rmm, Source::Allocator)
    })
}
