//! What stands between the products of a transformer: embedding, residual sums, normalisation, GELU, heads.
//!
//! On a GPU each is one pass over memory, by kernels that NVRTC compiles at run time (`shim/fused.cpp`); elsewhere, and
//! where a width is no multiple of 4, the same by LibTorch's operations. On a GPU a product leaves its bias to what comes
//! after it: added there it costs nothing, and its gradient is summed where the values pass by anyway. [`Product`] is what
//! such a product gives.
//!
//! All functions panic on an engine error like `tch`'s own; [`crate::attempt`] turns that into a value.

use std::ptr;

use tch::{Device, Tensor};

use crate::attempt::raise;
use crate::error::Result;
use crate::ffi;

/// What a linear layer computed, and the bias that is still to be added to it.
#[derive(Debug)]
pub struct Product<'a> {
    /// The values.
    pub values: Tensor,
    /// What to add to each row, where it is not in `values` yet.
    pub bias: Option<&'a Tensor>,
}

impl<'a> Product<'a> {
    /// `x` times `weight` transposed, plus `bias`: at once, or on a GPU by the function that is given this.
    #[must_use]
    pub fn of(x: &Tensor, weight: &Tensor, bias: &'a Tensor) -> Product<'a> {
        match x.device() {
            Device::Cuda(_) => Product { values: linear(x, weight, None), bias: Some(bias) },
            _ => Product { values: x.linear(weight, Some(bias)), bias: None },
        }
    }
}

/// `x` times `weight` transposed, plus `bias`.
///
/// On a GPU, where `weight` is a parameter in fp32 and products are narrower, its gradient is added up in fp32 by the product that
/// makes it, and its narrow copy is kept from step to step where [`NarrowWeights`] says so.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let mut out = ptr::null_mut();
    // SAFETY: the tensors live through the call; on success `out` holds a tensor that is ours.
    let result = unsafe {
        ffi::lt_linear(x.as_ptr(), weight.as_ptr(), ffi::pointer(bias), &mut out)
            .check()
            .map(|()| Tensor::from_ptr(out))
    };
    result.unwrap_or_else(|error| raise(error))
}

/// Narrow copies of the weights that [`linear`] and the loss head multiply with, kept instead of being cast each time. They are the
/// process's: where one of these lets them go, all copies go.
#[derive(Debug, Default)]
pub struct NarrowWeights {
    are_kept: bool,
}

impl NarrowWeights {
    /// Keeps them from now on, or lets them go.
    pub fn keep(&mut self, keeps: bool) {
        if self.are_kept != keeps {
            self.are_kept = keeps;
            // SAFETY: no pointers cross.
            unsafe { ffi::lt_narrow_keep(i32::from(keeps)) }
        }
    }

    /// Makes those of `changed` what the weights are now: to be called whenever weights have changed.
    pub fn refresh(&self, changed: &[Tensor]) -> Result<()> {
        if !self.are_kept {
            return Ok(());
        }
        let weights = ffi::pointers(changed);
        // SAFETY: the list is as long as it says; its tensors live in `changed` through the call.
        unsafe { ffi::lt_narrow_refresh(weights.as_ptr(), weights.len()) }.check()
    }
}

impl Drop for NarrowWeights {
    fn drop(&mut self) {
        self.keep(false);
    }
}

impl From<Tensor> for Product<'_> {
    fn from(values: Tensor) -> Self {
        Product { values, bias: None }
    }
}

/// Normalisation over the last dimension.
#[derive(Debug)]
pub struct LayerNorm<'a> {
    /// What each normalised column is multiplied by.
    pub weight: &'a Tensor,
    /// What is added to it then.
    pub bias: &'a Tensor,
    /// What keeps a row of equal values from being divided by 0.
    pub epsilon: f64,
}

impl LayerNorm<'_> {
    /// `x`, to go on with, and `x` normalised: on a GPU in the kind in which products are computed.
    ///
    /// Whoever adds to `x` later takes the one given back: its gradient then comes together with that of the normalised
    /// values in one pass.
    pub fn apply(&self, x: &Tensor) -> (Tensor, Tensor) {
        self.run(x, None, None)
    }

    /// `x` and `more` added up, and that sum normalised.
    pub fn after_adding(&self, x: &Tensor, more: &Product<'_>) -> (Tensor, Tensor) {
        self.run(x, Some(&more.values), more.bias)
    }

    fn run(&self, x: &Tensor, more: Option<&Tensor>, bias: Option<&Tensor>) -> (Tensor, Tensor) {
        let (mut sum, mut normed) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the tensors live through the call; on success both places hold tensors that are ours.
        let result = unsafe {
            ffi::lt_add_norm(
                x.as_ptr(),
                ffi::pointer(more),
                ffi::pointer(bias),
                self.weight.as_ptr(),
                self.bias.as_ptr(),
                self.epsilon,
                &mut sum,
                &mut normed,
            )
            .check()
            .map(|()| (Tensor::from_ptr(sum), Tensor::from_ptr(normed)))
        };
        result.unwrap_or_else(|error| raise(error))
    }
}

/// `x` and `more` added up.
pub fn add(x: &Tensor, more: &Product<'_>) -> Tensor {
    let mut sum = ptr::null_mut();
    // SAFETY: the tensors live through the call; on success `sum` holds a tensor that is ours.
    let result = unsafe {
        ffi::lt_add(x.as_ptr(), more.values.as_ptr(), ffi::pointer(more.bias), &mut sum)
            .check()
            .map(|()| Tensor::from_ptr(sum))
    };
    result.unwrap_or_else(|error| raise(error))
}

/// GELU by the error function, which the kernel has to 1.5e-7; not the one by tanh.
pub fn gelu(x: &Product<'_>) -> Tensor {
    let mut out = ptr::null_mut();
    // SAFETY: the tensors live through the call; on success `out` holds a tensor that is ours.
    let result = unsafe {
        ffi::lt_gelu(x.values.as_ptr(), ffi::pointer(x.bias), &mut out).check().map(|()| Tensor::from_ptr(out))
    };
    result.unwrap_or_else(|error| raise(error))
}

/// The rows of `table` (v, c) that `ids` (b, t) name, each plus the row of `positions` (t, c) for its place.
///
/// On a GPU, where `table` is a parameter in fp32, its gradient is added to the one that it has, row by row and in a fixed order; an
/// id that it has no row for makes NaN there.
pub fn embed(ids: &Tensor, table: &Tensor, positions: &Tensor) -> Tensor {
    let mut out = ptr::null_mut();
    // SAFETY: the tensors live through the call; on success `out` holds a tensor that is ours.
    let result = unsafe {
        ffi::lt_embed(ids.as_ptr(), table.as_ptr(), positions.as_ptr(), &mut out)
            .check()
            .map(|()| Tensor::from_ptr(out))
    };
    result.unwrap_or_else(|error| raise(error))
}

/// Queries, keys and values, each (b, heads, t, d): of `x` (b, t, c) times `weight` (3 * heads * d, c) transposed, plus `bias`.
pub fn heads(x: &Tensor, weight: &Tensor, bias: &Tensor, heads: i64) -> [Tensor; 3] {
    let mut parts = [ptr::null_mut(); 3];
    let [queries, keys, values] = &mut parts;
    // SAFETY: the tensors live through the call; on success the three places hold tensors that are ours.
    let result = unsafe {
        ffi::lt_heads(x.as_ptr(), weight.as_ptr(), bias.as_ptr(), heads, queries, keys, values)
            .check()
            .map(|()| parts.map(|part| Tensor::from_ptr(part)))
    };
    result.unwrap_or_else(|error| raise(error))
}

/// Why these functions do without kernels of their own on a CUDA device; `None` where they have them.
///
/// The first call compiles the kernels, which takes about a second.
#[must_use]
pub fn fused_kernels_problem(device: usize) -> Option<String> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_fused_check(i32::try_from(device).ok()?) }.check().err().map(|error| error.to_string())
}
