//! The loss head of a language model: output layer and cross-entropy in one.
//!
//! The loss head computes gradients in forward. The gradient of the logits is known as soon as they are; turning it
//! into the gradients of hidden values and weight at once means that only one piece of logits is ever held, and no
//! product is made twice. On a GPU a kernel, compiled at run time by NVRTC, writes the gradient over the logits.

use std::ffi::CStr;
use std::num::NonZeroU32;
use std::ptr;

use tch::Tensor;

use crate::attempt::raise;
use crate::ffi;
use crate::profile::span;

/// The cross-entropy of next tokens, summed over all rows.
///
/// `hidden` is (rows, width), `weight` (vocabulary, width), `targets` (rows); a target of -100 does not count. The logits
/// are computed in `chunks` pieces of rows, and only one piece is held at a time: their gradient is turned into those of
/// `hidden` and `weight` at once. Products are made in autocast's kind where that is on, the loss itself in fp32. On a
/// GPU a kernel of our own reads a row of logits twice and writes its gradient over it; a vocabulary that is no multiple
/// of 8 (4 in fp32) goes LibTorch's way, through fp32.
///
/// Panics on an engine error like `tch`'s own functions; [`crate::attempt`] turns that into a value.
pub fn linear_cross_entropy(hidden: &Tensor, weight: &Tensor, targets: &Tensor, chunks: NonZeroU32) -> Tensor {
    let mut out = ptr::null_mut();
    // SAFETY: the tensors live through the call; on success `out` holds a tensor that is ours.
    let result = span(LOSS_HEAD, || unsafe {
        ffi::lt_linear_cross_entropy(
            hidden.as_ptr(),
            weight.as_ptr(),
            targets.as_ptr(),
            i64::from(chunks.get()),
            &mut out,
        )
        .check()
        .map(|()| Tensor::from_ptr(out))
    });
    result.unwrap_or_else(|error| raise(error))
}

/// What a profiler calls the loss head.
pub const LOSS_HEAD: &CStr = c"lowtide: loss head";

/// Why [`linear_cross_entropy`] does without its own kernel on a CUDA device; `None` where it has it.
///
/// The first call compiles the kernel, which takes some tenths of a second.
#[must_use]
pub fn loss_kernel_problem(device: usize) -> Option<String> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_loss_kernel_check(i32::try_from(device).ok()?) }.check().err().map(|error| error.to_string())
}
