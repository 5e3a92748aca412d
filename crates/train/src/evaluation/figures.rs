//! What evaluations found: which figures they have, how they have gone, and when that is a reason to end a run early.

use std::collections::BTreeMap;

use lowtide_core::{Bytes, Metrics, Step};
use lowtide_settings::{EvalSettings, Origins, SettingsError};
use lowtide_torch::TorchError;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Result;
use crate::workload::{Metric, Workload};

/// The figure that is always there: what the best checkpoint and `eval.patience` go by.
pub(super) const LOSS: &str = "loss";

/// Figures that could not be computed, and why.
pub(crate) type MissingFigures = BTreeMap<String, String>;

/// The figures of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EvalFigures {
    /// The last committed step.
    pub(crate) step: Step,
    /// The mean loss; one that is no finite number is `null` in a file.
    #[serde(deserialize_with = "null_as_nan")]
    pub(crate) loss: f64,
    /// The workload's own figures.
    pub(crate) metrics: Metrics,
    /// The most memory held by tensors on the device meanwhile. Checkpoints of older runs do not tell.
    #[serde(default)]
    pub(crate) peak: Bytes,
    /// Pixels along each side of a tile, where frames were evaluated in tiles.
    #[serde(default)]
    pub(crate) tile: Option<u32>,
    /// Whether the tiles change what the model sees.
    #[serde(default)]
    pub(crate) approximate: bool,
}

/// What a checkpoint holds of the evaluations before it. Checkpoints of older runs hold less.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastEvaluation {
    /// The figures of the last one, where it was not given up.
    #[serde(default, rename = "evaluated")]
    pub(crate) figures: Option<EvalFigures>,
    /// Figures that it could not compute, and why.
    #[serde(default)]
    pub(crate) missing: MissingFigures,
    /// The tile that `auto` found under this line.
    #[serde(default)]
    pub(crate) found_tile: Option<u32>,
}

/// An evaluation of frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalSummary {
    /// What of a frame was evaluated, and how.
    pub mode: EvalMode,
    /// Whether the tiles changed what the model saw, so that the figures are not those of whole frames.
    #[serde(default)]
    pub approximate: bool,
    /// Pixels along each side of a tile.
    pub tile: Option<u32>,
    /// The most memory held by tensors on the device meanwhile.
    pub peak_bytes: u64,
    /// Figures that could not be computed, and why.
    #[serde(default)]
    pub missing: BTreeMap<String, String>,
    /// The workload's own figures.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// What of a frame was evaluated, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvalMode {
    /// A part of each frame.
    Crop,
    /// In tiles.
    Tile,
    /// Whole frames at once.
    Whole,
}

/// The evaluations that the settings ask for between steps, over all starts of a run.
///
/// The one that a finished run is given at its last step is left out where no other falls on that step: a run that was
/// to be longer from the start would not have had it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trend {
    /// The lowest loss.
    pub(crate) best: Option<f64>,
    /// Evaluations in a row, up to the last one, that were not better.
    pub(crate) not_better: u64,
}

impl Trend {
    /// Takes in an evaluation. A loss that is no finite number is never better.
    pub(crate) fn note(&mut self, loss: f64) {
        if loss.is_finite() && self.best.is_none_or(|best| loss < best) {
            (self.best, self.not_better) = (Some(loss), 0);
        } else {
            self.not_better += 1;
        }
    }

    /// Whether it has not got better for as long as one was willing to wait.
    pub(crate) fn outlasts(&self, patience: Option<u64>) -> bool {
        patience.is_some_and(|patience| self.not_better >= patience)
    }
}

/// Refuses a name that the workload does not have.
pub(super) fn check_metrics(settings: &EvalSettings, workload: &dyn Workload) -> Result<()> {
    let known: Vec<&str> = [LOSS].into_iter().chain(workload.metrics().iter().map(|metric| metric.name)).collect();
    let mut names = settings.metrics.iter().flatten();
    let Some(unknown) = names.find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
    let problem =
        format!("`{}` has no metric `{}`: there are {}", workload.name(), unknown.escape_debug(), known.join(", "));
    Err(SettingsError::refused("eval.metrics", problem, &Origins::default()).into())
}

/// Fresh tallies of those that are asked for and not left out.
pub(super) fn selected_metrics<'a>(
    settings: &EvalSettings,
    workload: &'a dyn Workload,
    left_out: &MissingFigures,
) -> Vec<Metric<'a>> {
    let mut metrics = workload.metrics();
    metrics.retain(|metric| {
        let is_asked = settings.metrics.as_ref().is_none_or(|names| names.iter().any(|name| name == metric.name));
        is_asked && !left_out.contains_key(metric.name)
    });
    metrics
}

/// Why memory that ran out cost a figure.
pub(super) fn reason(error: &TorchError) -> String {
    let TorchError::Oom { oom, .. } = error else { return error.to_string() };
    let known = [
        oom.requested.filter(|asked| *asked > Bytes::ZERO).map(|asked| format!("{asked} were asked for")),
        oom.allocated.map(|held| format!("{held} were in use")),
        oom.limit.map(|limit| format!("the limit is {limit}")),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let colon = if known.is_empty() { "" } else { ": " };
    format!("memory ran out{colon}{}", known.join(", "))
}

fn null_as_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_begins_anew_with_every_better_loss() {
        let mut trend = Trend::default();
        let losses = [(3.0, 0), (3.0, 1), (f64::NAN, 2), (2.0, 0), (2.5, 1), (f64::NEG_INFINITY, 2), (2.1, 3)];
        for (loss, not_better) in losses {
            trend.note(loss);
            assert_eq!(trend.not_better, not_better, "after {loss}");
        }
        assert_eq!(trend.best, Some(2.0));
        assert!(trend.outlasts(Some(3)) && !trend.outlasts(Some(4)) && !trend.outlasts(None));
    }

    #[test]
    fn no_loss_at_all_is_not_better() {
        let mut trend = Trend::default();
        trend.note(f64::NAN);
        assert_eq!((trend.best, trend.not_better), (None, 1));
    }
}
