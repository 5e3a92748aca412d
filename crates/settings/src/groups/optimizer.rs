//! How parameters are updated.

use serde::{Deserialize, Serialize};

use super::violation::{Violation, ensure, fits_fp32, not_negative};

/// How AdamW updates the parameters: the keys under `optimizer`.
///
/// The learning rate rises in a straight line over the warm-up, then falls along half a cosine to its minimum at the last
/// step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerSettings {
    /// Highest learning rate, 0 or more. Default: 0.001.
    pub learning_rate: f64,
    /// Learning rate at the last step, 0 or more and at most `learning_rate`. Default: 0.0001.
    pub min_learning_rate: f64,
    /// Steps until the highest learning rate. Default: 20.
    pub warmup_steps: u64,
    /// Decoupled weight decay, 0 or more. Default: 0.1.
    pub weight_decay: f64,
    /// Decay of the first moment, 0 or more and below 1. Default: 0.9.
    pub beta1: f64,
    /// Decay of the second moment, 0 or more and below 1. Default: 0.95.
    pub beta2: f64,
    /// Largest norm of all gradients together, above 0; null is no limit. Default: 1.
    pub clip: Option<f64>,
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            min_learning_rate: 1e-4,
            warmup_steps: 20,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            clip: Some(1.0),
        }
    }
}

impl OptimizerSettings {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        not_negative("learning_rate", self.learning_rate)?;
        not_negative("min_learning_rate", self.min_learning_rate)?;
        let highest = format!("a number up to optimizer.learning_rate ({})", self.learning_rate);
        let lowest = self.min_learning_rate;
        ensure(lowest <= self.learning_rate, "min_learning_rate", &highest, lowest)?;
        not_negative("weight_decay", self.weight_decay)?;
        // What a step takes of each weight. It is computed as one number.
        let decay = self.learning_rate * self.weight_decay;
        let most = format!("a number whose product with optimizer.learning_rate ({:e}) fits fp32", self.learning_rate);
        ensure((decay as f32).is_finite(), "weight_decay", &most, format!("{:e}", self.weight_decay))?;
        for (key, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            ensure((0.0..1.0).contains(&beta), key, "a number of 0 or more and below 1", beta)?;
            ensure((beta as f32) < 1.0, key, "a number that is still below 1 in fp32, such as 0.9999999", beta)?;
        }
        let Some(clip) = self.clip else { return Ok(()) };
        ensure(clip > 0.0, "clip", "a number above 0, or null for no limit", clip)?;
        let least = format!("a number of {:e} or more, the smallest in fp32, or null for no limit", f32::MIN_POSITIVE);
        ensure(clip >= f64::from(f32::MIN_POSITIVE), "clip", &least, format!("{clip:e}"))?;
        fits_fp32("clip", clip)
    }
}
