//! Gradients as a list: the norm, clipping by it, and letting them go.

use std::ptr;

use tch::Tensor;

use crate::attempt::{attempt, raise};
use crate::error::Result;
use crate::ffi;

/// The gradients of the parameters that have one.
#[must_use]
pub fn of(parameters: &[Tensor]) -> Vec<Tensor> {
    parameters.iter().map(Tensor::grad).filter(Tensor::defined).collect()
}

/// Puts the numbers of each gradient one after the other in memory, where they are not.
pub fn make_contiguous(gradients: &[Tensor]) -> Result<()> {
    for gradient in gradients.iter().filter(|gradient| !gradient.is_contiguous()) {
        attempt(|| gradient.shallow_clone().set_data(&gradient.contiguous()))?;
    }
    Ok(())
}

/// Multiplies the gradients by a factor, in place.
pub fn scale(gradients: &[Tensor], factor: f64) -> Result<()> {
    attempt(|| gradients.iter().for_each(|gradient| drop(gradient.shallow_clone().g_mul_scalar_(factor))))
}

/// The 2-norm of all gradients together, as a scalar on their device; reading its value waits for the device.
pub fn norm(gradients: &[Tensor]) -> Result<Tensor> {
    let list = ffi::pointers(gradients);
    let mut out = ptr::null_mut();
    // SAFETY: the list lives through the call; on success `out` holds a tensor that is ours.
    unsafe {
        ffi::lt_grad_norm(list.as_ptr(), list.len(), &mut out).check()?;
        Ok(Tensor::from_ptr(out))
    }
}

/// What the gradients are to be multiplied by so that their norm is at most `limit`, as a scalar on their device.
pub fn clip_factor(gradients: &[Tensor], limit: f64) -> Result<Tensor> {
    let norm = norm(gradients)?;
    let mut out = ptr::null_mut();
    // SAFETY: the norm lives through the call; on success `out` holds a tensor that is ours.
    unsafe {
        ffi::lt_clip_factor(norm.as_ptr(), limit, &mut out).check()?;
        Ok(Tensor::from_ptr(out))
    }
}

/// Scales the gradients in place so that their norm is at most `limit`.
pub fn clip(gradients: &[Tensor], limit: f64) -> Result<()> {
    let factor = clip_factor(gradients, limit)?;
    let list = ffi::pointers(gradients);
    // SAFETY: the list and the factor live through the call.
    unsafe { ffi::lt_scale_grads(list.as_ptr(), list.len(), factor.as_ptr()) }.check()
}

/// Lets the parameters' gradients go, so that their memory is free; the next backward makes new ones. Like `tch`'s own
/// functions it panics on an engine error.
pub fn release(parameters: &[Tensor]) {
    let list = ffi::pointers(parameters);
    // SAFETY: the list lives through the call; nothing else reads the gradients meanwhile.
    let status = unsafe { ffi::lt_release_grads(list.as_ptr(), list.len()) };
    status.check().unwrap_or_else(|error| raise(error));
}

/// Gives the parameters gradients of zero in memory that stays where it is: the next backward adds to them in place.
pub fn begin_in(parameters: &[Tensor], memory: &[Tensor]) -> Result<()> {
    assert_eq!(parameters.len(), memory.len(), "each parameter has its memory");
    let (parameters, memory) = (ffi::pointers(parameters), ffi::pointers(memory));
    // SAFETY: the lists are as long as said and live through the call; the engine shares the memory from then on.
    unsafe { ffi::lt_zero_grads(parameters.as_ptr(), memory.as_ptr(), parameters.len()) }.check()
}

/// Copies `source` into `target` in place without raising the version that autograd checks: for buffers that go back to
/// what they were.
pub fn copy_quietly(target: &Tensor, source: &Tensor) -> Result<()> {
    // SAFETY: both live through the call; the engine checks shapes and kinds.
    unsafe { ffi::lt_copy_quietly(target.as_ptr(), source.as_ptr()) }.check()
}
