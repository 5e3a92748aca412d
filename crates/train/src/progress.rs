//! The numbers of a run between two steps: what a checkpoint holds beside tensors.

use lowtide_core::{Bytes, Guard, Line, Step};
use serde::{Deserialize, Deserializer, Serialize};

use crate::evaluate::Evaluated;
use crate::memory::Reading;
use crate::metrics::Missing;
use crate::trend::Trend;

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
    /// The last evaluation, where it was not given up.
    #[serde(default)]
    pub(crate) evaluated: Option<Evaluated>,
    /// Figures that the last evaluation could not compute, and why.
    #[serde(default)]
    pub(crate) missing: Missing,
    /// The tile that `auto` found under this line.
    #[serde(default)]
    pub(crate) found_tile: Option<u32>,
    /// Whether the guard has its first micro-batch. Not so where the run was ended while it was looking for one.
    #[serde(default)]
    pub(crate) is_sized: bool,
}

/// What the summary tells of the steps so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Losses of the last steps; one that is no finite number is `null` in the file.
    #[serde(deserialize_with = "nulls_as_nan")]
    recent_losses: Vec<f64>,
    /// Samples computed in committed steps, counted piece by piece.
    pub(crate) samples_seen: u64,
    /// Out-of-memory errors met.
    pub(crate) oom_errors: u64,
    /// Those after which the same work was done.
    pub(crate) oom_recovered: u64,
    /// The most memory taken from the device.
    pub(crate) reserved_peak: Bytes,
    /// The most memory held by tensors.
    pub(crate) allocated_peak: Bytes,
    /// Seconds from start to end.
    pub(crate) wall_seconds: f64,
}

impl Figures {
    pub(crate) fn loss(&mut self, loss: f64) {
        if self.recent_losses.len() == RECENT {
            self.recent_losses.remove(0);
        }
        self.recent_losses.push(loss);
    }

    /// Notes the peaks.
    pub(crate) fn memory(&mut self, reading: &Reading) {
        self.reserved_peak = self.reserved_peak.max(reading.reserved_peak);
        self.allocated_peak = self.allocated_peak.max(reading.allocated_peak);
    }

    pub(crate) fn forget_peaks(&mut self) {
        (self.reserved_peak, self.allocated_peak) = (Bytes::ZERO, Bytes::ZERO);
    }

    /// The mean of the last losses.
    pub(crate) fn final_loss(&self) -> Option<f64> {
        let count = self.recent_losses.len();
        (count > 0).then(|| self.recent_losses.iter().sum::<f64>() / count as f64)
    }
}

pub(crate) fn null_as_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
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
        figures.loss(1.0);
        figures.loss(f64::INFINITY);
        let text = serde_json::to_string(&figures).unwrap();
        let read: Figures = serde_json::from_str(&text).unwrap();
        assert_eq!(read.recent_losses[0], 1.0);
        assert!(read.final_loss().unwrap().is_nan());
    }

    #[test]
    fn the_final_loss_is_the_mean_of_the_last_ones() {
        let mut figures = Figures::default();
        assert_eq!(figures.final_loss(), None);
        (0..100).for_each(|loss| figures.loss(f64::from(loss)));
        assert_eq!(figures.final_loss(), Some(89.5));
    }
}
