//! Status names of the device runtimes: ROCm, Level Zero, SYCL, OpenCL, Vulkan.

use crate::message::Message;
use crate::{Certainty, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if let Some((_, engine)) = HOST.iter().find(|(name, _)| line.contains(name)) {
        return Some(Oom::host(*engine, Source::Runtime));
    }
    let (_, engine, certainty) = DEVICE.iter().find(|(name, ..)| line.contains(name))?;
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
    ("CL_OUT_OF_RESOURCES", Engine::Oneapi, Certainty::Possible),
    ("PI_ERROR_OUT_OF_RESOURCES", Engine::Oneapi, Certainty::Possible),
    ("UR_RESULT_ERROR_OUT_OF_RESOURCES", Engine::Oneapi, Certainty::Possible),
    ("DXGI_ERROR_OUT_OF_MEMORY", Engine::Windows, Certainty::Sure),
];
