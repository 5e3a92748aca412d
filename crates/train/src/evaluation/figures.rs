//! What an evaluation found.

use std::collections::BTreeMap;

use lowtide_core::{Bytes, Metrics, Step};
use serde::{Deserialize, Deserializer, Serialize};

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

fn null_as_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
