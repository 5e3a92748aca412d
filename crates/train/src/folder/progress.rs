//! The numbers of a run between two steps: what a checkpoint holds beside tensors.

use lowtide_core::{Guard, Line, Numerics, Step};
use serde::{Deserialize, Deserializer, Serialize};

use crate::evaluation::{LastEvaluation, Trend};
use crate::memory::{DeviceMemory, MemoryFigures};

/// Steps whose losses the summary's final loss is the mean of.
const RECENT: usize = 20;

/// How far a run has come, over all its starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Steps committed.
    pub(crate) step: Step,
    /// The next sample to train on: the data cursor.
    pub(crate) next_sample: u64,
    /// Who decides what is done to stay under the line, with all that it remembers.
    pub(crate) guard: Guard,
    /// The line that the guard's decisions were made for.
    pub(crate) line: Line,
    /// The host line, likewise.
    pub(crate) host_line: Line,
    /// Figures for the summary.
    pub(crate) figures: Figures,
    /// How its evaluations went. Checkpoints of older runs do not tell.
    #[serde(default)]
    pub(crate) trend: Trend,
    #[serde(flatten)]
    pub(crate) evaluation: LastEvaluation,
    /// Whether the guard has its first micro-batch. Not so where the run was ended while it was looking for one.
    #[serde(default)]
    pub(crate) is_sized: bool,
    /// What decided the bits when it was written. Checkpoints of older runs do not tell.
    #[serde(default)]
    pub(crate) numerics: Option<Numerics>,
}

/// What the summary tells of the steps so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) recent_losses: RecentLosses,
    /// Samples computed in committed steps, counted piece by piece.
    pub(crate) samples_seen: u64,
    #[serde(flatten)]
    pub(crate) memory: MemoryFigures,
    /// Seconds from start to end.
    pub(crate) wall_seconds: f64,
}

/// Losses of the last steps; one that is no finite number is `null` in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecentLosses(#[serde(deserialize_with = "nulls_as_nan")] Vec<f64>);

impl Progress {
    /// Before the first step.
    pub(crate) fn fresh(guard: Guard, memory: &DeviceMemory) -> Progress {
        Progress {
            step: Step::ZERO,
            next_sample: 0,
            guard,
            line: memory.line,
            host_line: memory.host_line,
            figures: Figures::default(),
            trend: Trend::default(),
            evaluation: LastEvaluation::default(),
            is_sized: false,
            numerics: None,
        }
    }
}

impl RecentLosses {
    pub(crate) fn push(&mut self, loss: f64) {
        if self.0.len() == RECENT {
            self.0.remove(0);
        }
        self.0.push(loss);
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let count = self.0.len();
        (count > 0).then(|| self.0.iter().sum::<f64>() / count as f64)
    }
}

fn nulls_as_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let losses: Vec<Option<f64>> = Vec::deserialize(deserializer)?;
    Ok(losses.into_iter().map(|loss| loss.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_no_number_survives_a_checkpoint() {
        let mut figures = Figures::default();
        figures.recent_losses.push(1.0);
        figures.recent_losses.push(f64::INFINITY);
        let text = serde_json::to_string(&figures).unwrap();
        let zeros = r#""oom_errors":0,"oom_recovered":0,"reserved_peak":0,"allocated_peak":0,"wall_seconds":0.0"#;
        assert_eq!(text, format!(r#"{{"recent_losses":[1.0,null],"samples_seen":0,{zeros}}}"#));
        let read: Figures = serde_json::from_str(&text).unwrap();
        assert_eq!(read.recent_losses.0[0], 1.0);
        assert!(read.recent_losses.mean().unwrap().is_nan());
    }

    #[test]
    fn the_final_loss_is_the_mean_of_the_last_ones() {
        let mut losses = RecentLosses::default();
        assert_eq!(losses.mean(), None);
        (0..100).for_each(|loss| losses.push(f64::from(loss)));
        assert_eq!(losses.mean(), Some(89.5));
    }
}
