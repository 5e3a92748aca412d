//! The floating-point type that a run computes in.

use super::choice::{Choice, choice};

/// The floating-point type of the forward and backward pass; parameters and optimizer state stay fp32.
///
/// Written `auto`, `fp32`, `bf16` or `fp16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Whatever is best on the device.
    #[default]
    Auto,
    /// 32 bits.
    Fp32,
    /// 16 bits with the range of fp32.
    Bf16,
    /// 16 bits with a small range; the loss is scaled.
    Fp16,
}

impl Precision {
    const CHOICE: Choice<Self> = Choice {
        words: &[("auto", Self::Auto), ("fp32", Self::Fp32), ("bf16", Self::Bf16), ("fp16", Self::Fp16)],
        booleans: None,
    };
}

choice!(Precision);
