//! The state of the random number generators.

use std::ptr;

use tch::{Device, Tensor};

use crate::error::Result;
use crate::ffi;

/// The states of the generators a run draws from.
#[derive(Debug)]
pub struct RngState {
    /// The CPU generator's state: bytes, on the CPU.
    pub cpu: Tensor,
    /// The device generator's state where the run uses a CUDA device: bytes, on the CPU.
    pub cuda: Option<Tensor>,
}

/// Reads the state of the CPU's generator and, on CUDA, of the device's.
pub fn state(device: Device) -> Result<RngState> {
    let cuda = match device {
        Device::Cuda(_) => Some(get(index(device))?),
        _ => None,
    };
    Ok(RngState { cpu: get(ffi::CPU)?, cuda })
}

/// Sets what [`state`] read.
pub fn set_state(device: Device, state: &RngState) -> Result<()> {
    set(ffi::CPU, &state.cpu)?;
    match (&state.cuda, device) {
        (Some(cuda), Device::Cuda(_)) => set(index(device), cuda),
        _ => Ok(()),
    }
}

/// Starts the generators of the CPU and of `device` from a seed.
pub fn seed(device: Device, seed: u64) -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_rng_seed(ffi::CPU, seed) }.check()?;
    match device {
        // SAFETY: no pointers cross.
        Device::Cuda(_) => unsafe { ffi::lt_rng_seed(index(device), seed) }.check(),
        _ => Ok(()),
    }
}

fn index(device: Device) -> i32 {
    match device {
        Device::Cuda(index) => i32::try_from(index).expect("a device index is small"),
        _ => ffi::CPU,
    }
}

fn get(device: i32) -> Result<Tensor> {
    let mut out = ptr::null_mut();
    // SAFETY: on success `out` holds a tensor that is ours.
    unsafe {
        ffi::lt_rng_get(device, &mut out).check()?;
        Ok(Tensor::from_ptr(out))
    }
}

fn set(device: i32, state: &Tensor) -> Result<()> {
    // SAFETY: the tensor lives through the call; the engine checks its size and kind.
    unsafe { ffi::lt_rng_set(device, state.as_ptr()) }.check()
}
