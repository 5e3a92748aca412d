//! Loss scaling for fp16: gradients too small for the kind are lifted before backward and put back after it.

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::attempt::attempt;
use crate::error::Result;
use crate::ffi;

/// How the scale moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerRule {
    /// The scale at the start. Default 65536.
    pub initial: f64,
    /// The scale is multiplied by this after `growth_interval` good steps. Default 2.
    pub growth: f64,
    /// The scale is multiplied by this after a step with a value that is not finite. Default 0.5.
    pub backoff: f64,
    /// Good steps before the scale grows. Default 2000.
    pub growth_interval: u32,
}

impl Default for ScalerRule {
    fn default() -> ScalerRule {
        ScalerRule { initial: 65536.0, growth: 2.0, backoff: 0.5, growth_interval: 2000 }
    }
}

/// What unscaling found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a step must not be made on gradients that overflowed"]
pub enum GradientRange {
    /// All gradients are finite.
    Finite,
    /// At least one is not: the step is to be skipped.
    Overflow,
}

/// The scale and what it remembers, as a checkpoint does: under the default rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradScaler {
    #[serde(skip)]
    rule: ScalerRule,
    scale: f64,
    /// Good steps since the scale last moved.
    good_steps: u32,
    skipped: u64,
}

impl GradScaler {
    /// A scaler at the rule's initial scale.
    #[must_use]
    pub fn new(rule: ScalerRule) -> GradScaler {
        GradScaler { rule, scale: rule.initial, good_steps: 0, skipped: 0 }
    }

    /// The factor on the loss.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Steps skipped because of an overflow.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Divides the gradients by the scale in place and says whether all are finite. Waits for the device.
    pub fn unscale(&self, gradients: &[Tensor]) -> Result<GradientRange> {
        let device = gradients.first().map_or(Device::Cpu, Tensor::device);
        let (found, inverse) = attempt(|| {
            let found = Tensor::zeros([], (Kind::Float, device));
            (found, Tensor::full([], 1.0 / self.scale, (Kind::Float, device)))
        })?;
        let list = ffi::pointers(gradients);
        // SAFETY: the lists and scalars live through the call.
        unsafe { ffi::lt_unscale(list.as_ptr(), list.len(), found.as_ptr(), inverse.as_ptr()) }.check()?;
        let overflowed = attempt(|| found.double_value(&[]) > 0.0)?;
        Ok(if overflowed { GradientRange::Overflow } else { GradientRange::Finite })
    }

    /// Moves the scale after a step that was made, or skipped.
    pub fn update(&mut self, outcome: GradientRange) {
        match outcome {
            GradientRange::Overflow => {
                self.scale *= self.rule.backoff;
                self.good_steps = 0;
                self.skipped += 1;
            }
            GradientRange::Finite => {
                self.good_steps += 1;
                if self.good_steps >= self.rule.growth_interval {
                    self.scale *= self.rule.growth;
                    self.good_steps = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaler() -> GradScaler {
        GradScaler::new(ScalerRule { growth_interval: 2, ..ScalerRule::default() })
    }

    #[test]
    fn grows_after_good_steps_and_backs_off_after_a_bad_one() {
        let mut scaler = scaler();
        scaler.update(GradientRange::Finite);
        assert_eq!(scaler.scale(), 65536.0);
        scaler.update(GradientRange::Finite);
        assert_eq!(scaler.scale(), 131_072.0);
        scaler.update(GradientRange::Overflow);
        assert_eq!((scaler.scale(), scaler.skipped()), (65536.0, 1));
    }

    #[test]
    fn unscale_divides_and_finds_what_is_not_finite() {
        let scaler = scaler();
        let good = Tensor::from_slice(&[65536.0f32, 131_072.0]);
        assert_eq!(scaler.unscale(&[good.shallow_clone()]).unwrap(), GradientRange::Finite);
        assert_eq!(Vec::<f32>::try_from(good).unwrap(), [1.0, 2.0]);
        let bad = Tensor::from_slice(&[1.0f32, f32::INFINITY]);
        assert_eq!(scaler.unscale(&[bad]).unwrap(), GradientRange::Overflow);
    }
}
