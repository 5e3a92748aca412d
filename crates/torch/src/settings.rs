//! Settings of the whole process.

use crate::error::Result;
use crate::ffi;

/// How exact products of fp32 matrices are on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// Full fp32.
    Highest,
    /// tf32 where the card has it: about three decimal digits, several times faster.
    High,
}

/// Operations with more than one possible order of adding use one fixed order, or fail where they have none.
///
/// cuBLAS also wants `CUBLAS_WORKSPACE_CONFIG=:4096:8` in the environment; [`crate::cuda::set_environment`] sets it.
pub fn set_deterministic(on: bool) -> Result<()> {
    // SAFETY: no pointers cross.
    unsafe { ffi::lt_set_deterministic(i32::from(on)) }.check()
}

/// Sets how exact fp32 products are.
pub fn set_matmul_precision(precision: MatmulPrecision) -> Result<()> {
    let name = match precision {
        MatmulPrecision::Highest => c"highest",
        MatmulPrecision::High => c"high",
    };
    // SAFETY: the name is a static NUL-terminated string.
    unsafe { ffi::lt_set_matmul_precision(name.as_ptr()) }.check()
}
