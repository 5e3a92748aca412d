//! In which kind of number a run computes.

use lowtide_settings::Precision;
use lowtide_torch::DeviceFacts;
use lowtide_torch::tch::{Device, Kind};

/// The kind that `auto` or a named precision means on this device.
///
/// `auto` takes bf16 where the card has it, else fp16 with loss scaling, else (on the CPU) fp32.
pub(crate) fn kind(asked: Precision, facts: &DeviceFacts) -> Kind {
    match (asked, facts.device) {
        (Precision::Fp32, _) | (Precision::Auto, Device::Cpu) => Kind::Float,
        (Precision::Bf16, _) => Kind::BFloat16,
        (Precision::Fp16, _) => Kind::Half,
        (Precision::Auto, _) if facts.bf16 => Kind::BFloat16,
        (Precision::Auto, _) => Kind::Half,
    }
}

/// The kind that fp32 may become when memory asks for it; `None` where it is narrow already.
pub(crate) fn narrower(kind: Kind, facts: &DeviceFacts) -> Option<Kind> {
    match (kind, facts.device) {
        (Kind::Float, Device::Cuda(_)) if !facts.bf16 => Some(Kind::Half),
        (Kind::Float, _) => Some(Kind::BFloat16),
        _ => None,
    }
}

/// The name of a kind in settings and files.
pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::BFloat16 => "bf16",
        Kind::Half => "fp16",
        _ => "fp32",
    }
}
