//! Opening the engine: which device a run asked for, which there is, and what it has.

use std::fs;
use std::sync::OnceLock;

use lowtide_core::{Bytes, DeviceChoice};
use tch::{Device, Kind, Tensor};

use crate::attempt::raise;
use crate::error::{Result, TorchError};
use crate::{AdamW, AdamWRule, attempt, cuda, ffi, gradients, host, loss_kernel_problem, numerics};

/// The device a run gets, and what it has.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// The device in the engine's terms.
    pub device: Device,
    /// Its name, for people.
    pub name: String,
    /// All the memory there is: the card's, or the machine's (the container's where that is less).
    pub total: Bytes,
    /// Free when the engine was opened.
    pub free: Bytes,
    /// Used on the card outside the engine's allocator, once the libraries are loaded. Zero on the CPU.
    pub context: Bytes,
    /// Whether bf16 arithmetic is native.
    pub bf16: bool,
    /// All the memory of the machine, or of the container where that is less.
    pub host_total: Bytes,
    /// Why there is no CUDA, where `auto` was asked for and a driver is there.
    pub note: Option<String>,
}

/// Opens the engine: the host allocator, then CUDA where asked for (or `auto` and a driver is there).
///
/// The engine remembers for the life of the process whether there is CUDA, so this comes before any tensor.
pub fn start(choice: DeviceChoice) -> Result<DeviceFacts> {
    start_for(choice, 0)
}

/// The same for one of several ranks on a machine: `auto` gives each its own card, and begins anew where there are fewer.
pub fn start_for(choice: DeviceChoice, local_rank: u32) -> Result<DeviceFacts> {
    host::install();
    numerics::warm_up()?;
    match choice {
        DeviceChoice::Cpu => Ok(cpu_facts(None)),
        DeviceChoice::Cuda(index) => {
            let count = load_cuda()?;
            if index >= count {
                return Err(TorchError::Device(no_such_device(index, count)));
            }
            cuda_facts(index).map_err(unusable)
        }
        DeviceChoice::Auto if !driver_present() => Ok(cpu_facts(None)),
        DeviceChoice::Auto => match load_cuda() {
            Ok(0) => Ok(cpu_facts(Some("the NVIDIA driver is there and shows no device".to_owned()))),
            Ok(count) => {
                cuda_facts(local_rank as usize % count).or_else(|error| Ok(cpu_facts(Some(error.to_string()))))
            }
            Err(error) => Ok(cpu_facts(Some(error.to_string()))),
        },
    }
}

fn no_such_device(index: usize, count: usize) -> String {
    match count {
        0 => format!("there is no CUDA device {index}: the driver shows none"),
        1 => format!("there is no CUDA device {index}: the only one is cuda:0"),
        _ => format!("there is no CUDA device {index}: there are cuda:0 to cuda:{}", count - 1),
    }
}

fn driver_present() -> bool {
    // SAFETY: opens a library or does not.
    unsafe { ffi::lt_cuda_driver_present() != 0 }
}

/// Opens the CUDA half of LibTorch; the number of devices.
fn load_cuda() -> Result<usize> {
    if !driver_present() {
        return Err(TorchError::Device("there is no CUDA device: no NVIDIA driver is installed".to_owned()));
    }
    let mut count = 0;
    // SAFETY: loads a library whose initialisers register themselves with LibTorch; `count` is valid for writing.
    unsafe {
        ffi::lt_cuda_load().check().map_err(unusable)?;
        ffi::lt_cuda_start(&mut count).check().map_err(unusable)?;
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A device that is there and refuses to work is, for the person who asked for it, no device.
fn unusable(error: TorchError) -> TorchError {
    TorchError::Device(format!("CUDA cannot be used: {error}"))
}

/// The index of the CUDA device that was opened.
static STARTED: OnceLock<i32> = OnceLock::new();

/// The CUDA device in use, in the shim's terms; the CPU where there is none.
pub(crate) fn started_cuda() -> i32 {
    STARTED.get().copied().unwrap_or(ffi::CPU)
}

fn cuda_facts(index: usize) -> Result<DeviceFacts> {
    let bf16 = cuda::capability(index)?.0 >= 8;
    warm_up(index, bf16)?;
    let _ = STARTED.set(i32::try_from(index).unwrap_or(0));
    let memory = cuda::memory(index)?;
    Ok(DeviceFacts {
        device: Device::Cuda(index),
        name: cuda::name(index)?,
        total: memory.total,
        free: memory.free,
        context: cuda::context(index)?,
        bf16,
        host_total: host_memory().0,
        note: None,
    })
}

/// Runs one of each kind of kernel that training uses, so that the libraries are loaded when the context is measured.
fn warm_up(index: usize, bf16: bool) -> Result<()> {
    let device = Device::Cuda(index);
    let kinds = if bf16 { &[Kind::Float, Kind::Half, Kind::BFloat16][..] } else { &[Kind::Float, Kind::Half] };
    attempt(|| {
        let weight = Tensor::randn([256, 256], (Kind::Float, device)).set_requires_grad(true);
        for kind in kinds {
            let x = weight.layer_norm::<Tensor>([256], None, None, 1e-5, true).to_kind(*kind);
            let y = x.matmul(&x).gelu("none").dropout(0.5, true).view([1, 4, 64, 256]).narrow(3, 0, 64);
            let attended = Tensor::scaled_dot_product_attention::<Tensor>(&y, &y, &y, None, 0.0, true, None, false);
            attended.to_kind(Kind::Float).sum(Kind::Float).backward();
        }
        let image = Tensor::randn([1, 8, 32, 32], (Kind::Float, device));
        let kernel = Tensor::randn([8, 8, 3, 3], (Kind::Float, device)).set_requires_grad(true);
        image.conv2d::<Tensor>(&kernel, None, [1, 1], [1, 1], [1, 1], 1).sum(Kind::Float).backward();
        let parameters = [weight, kernel];
        let norm = gradients::clip(&gradients::of(&parameters), 1.0);
        let mut optimizer = AdamW::new(AdamWRule::default(), vec![(0.0, parameters.into())]);
        norm.and_then(|_| optimizer.step(0.0)).unwrap_or_else(|error| raise(error));
        // Compiled now, so that it counts; where it cannot be, the loss goes LibTorch's way.
        let _ = loss_kernel_problem(index);
        tch::Cuda::synchronize(index as i64);
    })?;
    cuda::empty_cache()
}

fn cpu_facts(note: Option<String>) -> DeviceFacts {
    let memory = host_memory();
    DeviceFacts {
        device: Device::Cpu,
        name: "CPU".to_owned(),
        total: memory.0,
        free: memory.1,
        context: Bytes(0),
        bf16: false,
        host_total: memory.0,
        note,
    }
}

/// Total and available memory of the machine, or of the container where that allows less.
fn host_memory() -> (Bytes, Bytes) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib.saturating_mul(1024))
    };
    let total = field("MemTotal:").unwrap_or(u64::MAX);
    let available = field("MemAvailable:").unwrap_or(total);
    let limit = container_limit().unwrap_or(u64::MAX);
    (Bytes(total.min(limit)), Bytes(available.min(limit)))
}

fn container_limit() -> Option<u64> {
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
}
