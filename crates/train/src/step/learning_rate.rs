//! The learning rate over a run: a linear warm-up, then half a cosine down to the least.

use lowtide_settings::OptimizerSettings;

/// The rate of step `step` (from 1) in a run of `steps`.
pub(crate) fn learning_rate(settings: &OptimizerSettings, step: u64, steps: u64) -> f64 {
    let top = settings.learning_rate;
    let least = settings.min_learning_rate.min(top);
    let warmup = settings.warmup_steps.min(steps);
    if step <= warmup {
        return top * step as f64 / (warmup as f64 + 1.0);
    }
    let done = (step - warmup) as f64 / (steps - warmup).max(1) as f64;
    least + 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos()) * (top - least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_then_falls_to_the_least() {
        let settings = OptimizerSettings {
            learning_rate: 1.0,
            min_learning_rate: 0.1,
            warmup_steps: 10,
            ..OptimizerSettings::default()
        };
        let rates: Vec<f64> = (1..=100).map(|step| learning_rate(&settings, step, 100)).collect();
        assert!(rates[..10].is_sorted());
        assert!(rates[10..].iter().rev().is_sorted());
        assert!((rates[99] - 0.1).abs() < 1e-12);
        assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 1.0));
    }

    #[test]
    fn a_warm_up_longer_than_the_run_is_a_warm_up() {
        let settings = OptimizerSettings { warmup_steps: 50, ..OptimizerSettings::default() };
        assert!(learning_rate(&settings, 5, 5).is_finite());
        let settings = OptimizerSettings { warmup_steps: u64::MAX, ..settings };
        assert!(learning_rate(&settings, 5, u64::MAX).is_finite());
    }
}
