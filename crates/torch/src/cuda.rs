//! Control of CUDA's caching allocator, and the environment it reads when it starts.
//!
//! Every function takes the index of a device that [`crate::start`] found.
//!
//! CUDA without linking it. `libtorch_cuda.so` is opened at run time, only when a driver is there. The allocator is
//! reached through LibTorch's registry and virtual functions; `shim/cuda_types` declares the few CUDA names that c10's
//! headers mention, so no CUDA toolkit is needed to build.

use std::env;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::OnceLock;

use lowtide_core::Bytes;

use crate::error::{Result, TorchError};
use crate::ffi;

/// The variables from which the allocator takes its settings; the first that is set wins.
pub const ALLOCATOR_VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];

/// With expandable segments the allocator may pass its limit by less than one page of the large pool.
pub const EXPANDABLE_SLACK: Bytes = Bytes::from_mib(20);

/// What the driver says of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaMemory {
    /// Free for anyone.
    pub free: Bytes,
    /// All there is.
    pub total: Bytes,
}

/// What an allocator says of a device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorReading {
    /// Held by tensors.
    pub allocated: Bytes,
    /// The most held by tensors since the peaks were reset.
    pub allocated_peak: Bytes,
    /// Taken from the device.
    pub reserved: Bytes,
    /// The most taken from the device since the peaks were reset.
    pub reserved_peak: Bytes,
    /// Times the cache had to be emptied to serve a request: an early warning.
    pub retries: u64,
    /// Requests that failed.
    pub ooms: u64,
}

/// Where the allocator's settings come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocatorSettings {
    /// The user set them in this variable, and they stay.
    Users {
        /// The variable that was set.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// Set by us.
    Ours(String),
}

impl AllocatorSettings {
    /// The settings themselves.
    #[must_use]
    pub fn value(&self) -> &str {
        match self {
            AllocatorSettings::Users { value, .. } | AllocatorSettings::Ours(value) => value,
        }
    }

    /// Whether segments may grow, and so pass the limit by up to [`EXPANDABLE_SLACK`].
    #[must_use]
    pub fn expandable(&self) -> bool {
        self.value().to_ascii_lowercase().contains("expandable_segments:true")
    }
}

/// Sets the allocator's environment, unless the user did. Only the first call in a process does anything.
///
/// To be called at the start of `main`: the allocator reads it when the CUDA libraries are loaded, and changing the
/// environment is sound only while no other thread reads it.
pub fn set_environment(settings: &str, deterministic: Deterministic) -> AllocatorSettings {
    static CHOSEN: OnceLock<AllocatorSettings> = OnceLock::new();
    CHOSEN.get_or_init(|| choose_environment(settings, deterministic)).clone()
}

fn choose_environment(settings: &str, deterministic: Deterministic) -> AllocatorSettings {
    if deterministic == Deterministic::Yes && env::var_os("CUBLAS_WORKSPACE_CONFIG").is_none() {
        // SAFETY: done once, before the engine starts threads that read the environment.
        unsafe { env::set_var("CUBLAS_WORKSPACE_CONFIG", ":4096:8") };
    }
    // The engine's profiler tells of devices that it does not find, and of every trace that it writes.
    if env::var_os("KINETO_LOG_LEVEL").is_none() {
        // SAFETY: as above.
        unsafe { env::set_var("KINETO_LOG_LEVEL", "99") };
    }
    for variable in ALLOCATOR_VARIABLES {
        if let Ok(value) = env::var(variable) {
            return AllocatorSettings::Users { variable, value };
        }
    }
    // SAFETY: as above.
    unsafe { env::set_var(ALLOCATOR_VARIABLES[0], settings) };
    AllocatorSettings::Ours(settings.to_owned())
}

/// Whether a run asked for fixed orders of adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deterministic {
    /// It did.
    Yes,
    /// It did not.
    No,
}

/// Free and total memory as the driver sees them, all processes together.
pub fn memory(device: usize) -> Result<CudaMemory> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are valid for writing through the call.
    unsafe { ffi::lt_cuda_memory(index(device)?, &mut free, &mut total) }.check()?;
    Ok(CudaMemory { free: Bytes(free), total: Bytes(total) })
}

/// The allocator's own figures.
pub fn stats(device: usize) -> Result<AllocatorReading> {
    let mut stats = ffi::CudaStats::default();
    // SAFETY: `stats` is valid for writing through the call.
    unsafe { ffi::lt_cuda_stats(index(device)?, &mut stats) }.check()?;
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    Ok(AllocatorReading {
        allocated: Bytes(count(stats.allocated)),
        allocated_peak: Bytes(count(stats.allocated_peak)),
        reserved: Bytes(count(stats.reserved)),
        reserved_peak: Bytes(count(stats.reserved_peak)),
        retries: count(stats.retries),
        ooms: count(stats.ooms),
    })
}

/// Memory that is used on the device and not by the allocator: the context, loaded kernels, library workspaces.
///
/// Other processes' memory counts in, because the driver does not tell them apart here. It grows as kernels are loaded:
/// ask after the first operations ran.
pub fn context(device: usize) -> Result<Bytes> {
    let memory = memory(device)?;
    Ok(memory.total.saturating_sub(memory.free).saturating_sub(stats(device)?.reserved))
}

/// Starts the peaks anew from what is held now.
pub fn reset_peaks(device: usize) -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_cuda_reset_peaks(index(device)?) }.check()
}

/// Gives cached blocks back to the driver.
pub fn empty_cache() -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_cuda_empty_cache() }.check()
}

/// The allocator takes no more than this share of the device's memory.
pub fn set_memory_fraction(device: usize, fraction: f64) -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_cuda_set_fraction(index(device)?, fraction.clamp(0.0, 1.0)) }.check()
}

/// The allocator takes no more than `limit`.
pub fn set_limit(device: usize, limit: Bytes) -> Result<()> {
    let total = memory(device)?.total.get();
    set_memory_fraction(device, limit.get() as f64 / total as f64)
}

/// Keeps the last `entries` allocator events for [`snapshot`]; 0 stops and forgets them.
pub fn record_history(entries: u64) -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_cuda_record_history(entries) }.check()
}

/// Writes the allocator's state and history as the pickle that PyTorch's memory viewer reads.
pub fn snapshot(path: &Path) -> Result<()> {
    let text = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| TorchError::Engine(format!("the path {} contains a NUL byte", path.display())))?;
    // SAFETY: the path is a NUL-terminated string that lives through the call.
    unsafe { ffi::lt_cuda_snapshot(text.as_ptr()) }.check()
}

/// The device's compute capability, as (major, minor). bf16 arithmetic needs 8.0.
pub fn capability(device: usize) -> Result<(i32, i32)> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid for writing through the call.
    unsafe { ffi::lt_cuda_capability(index(device)?, &mut major, &mut minor) }.check()?;
    Ok((major, minor))
}

/// The number that no other card has, on this machine or another.
pub(crate) fn uuid(device: usize) -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    // SAFETY: there is room for as many bytes as are written.
    unsafe { ffi::lt_cuda_uuid(index(device)?, uuid.as_mut_ptr()) }.check()?;
    Ok(uuid)
}

/// The device's name.
pub fn name(device: usize) -> Result<String> {
    let mut text = [0; 256];
    // SAFETY: `text` is as long as said, and the driver ends the name with a NUL.
    unsafe { ffi::lt_cuda_name(index(device)?, text.as_mut_ptr(), 256) }.check()?;
    // SAFETY: as above.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

fn index(device: usize) -> Result<i32> {
    i32::try_from(device).map_err(|_| TorchError::Device(format!("there is no CUDA device {device}")))
}
