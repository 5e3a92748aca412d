//! How long the guard goes on trying.

use serde::{Deserialize, Serialize};

use crate::Percent;

/// How often the guard tries again, and when it climbs back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Whether a failure is answered with another try at all. Default true.
    pub recover: bool,
    /// Failures of one step that are answered with another try; one more stops the run. Default 64.
    pub failures_per_step: u32,
    /// Failures of the whole run that are answered with another try; one more stops the run. Default 1,000.
    pub failures_per_run: u32,
    /// This many failures, with fewer steps than that committed between the first and the last of them, are no progress
    /// and stop the run. 0 switches the check off. Default 128.
    pub no_progress_failures: u32,
    /// Tries of one checkpoint (saving or loading) after its first failure. Default 3.
    pub checkpoint_retries: u32,
    /// Failed steps in a stretch that cleaning alone may answer, before cleaning counts as worn out and the next rung is
    /// taken at once. A stretch ends after `climb_after` steps without a failure. Default 4.
    pub cleans: u32,
    /// Steps without failure or warning before a larger micro-batch is tried. 0 never climbs, and a stretch never ends.
    /// Default 50.
    pub climb_after: u32,
    /// Share of the line that must stay free by the forecast for a larger micro-batch to be tried. Default 5%.
    pub climb_margin: Percent,
    /// Committed steps that must pass between two cleanings for rising allocation retries. Default 20.
    pub warning_rest: u32,
}

impl Default for Limits {
    fn default() -> Self {
        const FIVE: Percent = Percent::from_hundredths(500).expect("5 % is in range");
        Self {
            recover: true,
            failures_per_step: 64,
            failures_per_run: 1000,
            no_progress_failures: 128,
            checkpoint_retries: 3,
            cleans: 4,
            climb_after: 50,
            climb_margin: FIVE,
            warning_rest: 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_are_defaults_and_unknown_ones_are_refused() {
        assert_eq!(serde_json::from_str::<Limits>("{}").unwrap(), Limits::default());
        let limits: Limits = serde_json::from_str(r#"{"climb_margin": "2.5%"}"#).unwrap();
        assert_eq!(limits.climb_margin.hundredths(), 250);
        assert!(serde_json::from_str::<Limits>(r#"{"climb_afer": 1}"#).is_err());
    }
}
