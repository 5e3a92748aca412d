//! Where an optimizer's moments are when the device has no room for them.
//!
//! Spilling has two levels: inputs of recomputed segments, then AdamW's moments, which pass through a stage of 64 MiB
//! on the device slice by slice; an element's update looks at no other, so the numbers are the same. A model whose
//! moments cannot fit starts with them on the host. Pinned memory does not pass through our CPU allocator, so under a
//! host line nothing is spilled.

use std::ptr;

use tch::{Device, Kind, Tensor};

use crate::attempt::attempt;
use crate::error::Result;
use crate::ffi;

/// The most that is staged on the device of each of the two moments: enough for copies to run at full speed.
const SLICE: u64 = 32 << 20;
/// Every moment starts at a multiple of this, which suits the copies and every kind of number.
const ALIGNMENT: usize = 256;

/// Copies of the moments of `parameters` in host memory, zeros where there are none yet: all in one allocation, because
/// the engine rounds each pinned one up to a power of two.
pub(crate) fn moments_on_host(
    parameters: &[Tensor],
    now: &[(&Tensor, &Tensor)],
    device: Device,
) -> Result<Vec<(Tensor, Tensor)>> {
    let room = |tensor: &Tensor| {
        let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
        bytes.next_multiple_of(ALIGNMENT) as i64
    };
    for parameter in parameters {
        // SAFETY: the tensor lives through the call, which only looks at it.
        unsafe { ffi::lt_check_dense(parameter.as_ptr()) }.check()?;
    }
    let slab = host_bytes(2 * parameters.iter().map(room).sum::<i64>(), device)?;
    attempt(|| {
        let mut start = 0;
        let mut place = |like: &Tensor, value: Option<&Tensor>| {
            let bytes = slab.narrow(0, start, room(like));
            start += room(like);
            let mut at_home = bytes.view_dtype(like.kind()).as_strided(like.size(), like.stride(), None);
            match value {
                Some(value) => at_home.copy_(value),
                None => _ = at_home.zero_(),
            }
            at_home
        };
        let moments = parameters.iter().enumerate().map(|(index, parameter)| {
            let now = now.get(index);
            (place(parameter, now.map(|now| now.0)), place(parameter, now.map(|now| now.1)))
        });
        moments.collect()
    })
}

/// Room on the device for a slice of both moments.
pub(crate) fn stage(largest: u64, device: Device) -> Result<Tensor> {
    attempt(|| Tensor::empty([stage_bytes(largest) as i64], (Kind::Uint8, device)))
}

/// The size of the stage where the largest moment is of this size.
pub(crate) fn stage_bytes(largest: u64) -> u64 {
    2 * largest.min(SLICE).next_multiple_of(ALIGNMENT as u64)
}

fn host_bytes(bytes: i64, device: Device) -> Result<Tensor> {
    let mut out = ptr::null_mut();
    // SAFETY: `out` is valid for writing; on success it is a tensor that is ours.
    unsafe {
        ffi::lt_host_bytes(bytes, i32::from(device.is_cuda()), &mut out).check()?;
        Ok(Tensor::from_ptr(out))
    }
}
