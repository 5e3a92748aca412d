//! When and on how much a run is evaluated.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::violation::{Violation, at_least_one, ensure, every};
use crate::{CropChoice, TileChoice};

/// When and on how much a run is evaluated: the keys under `eval`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalSettings {
    /// Steps from one evaluation to the next, 1 or more; null is never. Default: 100.
    pub every: Option<u64>,
    /// Batches per evaluation, 1 or more. Default: 4.
    pub batches: u64,
    /// Batches of an evaluation, 1 or more, after which cached memory is given back each time; null is as
    /// `memory.clean` says. Default: null.
    pub clean_every: Option<u64>,
    /// Whether the run is evaluated before its first step too. Default: false.
    pub at_start: bool,
    /// Evaluations in a row, 1 or more, without a lower loss after which the run ends early; null is never. Default:
    /// null.
    pub patience: Option<u64>,
    /// The figures that are computed, by name, the loss among them: it is always there. Null is all that the workload has.
    /// Default: null.
    pub metrics: Option<Vec<String>>,
    /// The part of each frame that is evaluated, for workloads with frames: pixels along each side, in the middle, or
    /// null for whole frames. Default: auto, which is the training crop, and whole frames where `tile` is set.
    pub crop: CropChoice,
    /// Pixels along each side of the tiles that frames are evaluated in, one at a time and with the figures of the whole
    /// frame; auto is the largest that fits, null is no tiles. Default: null.
    pub tile: TileChoice,
    /// Whether a model that looks at whole frames may be evaluated in tiles all the same; its figures are marked as
    /// approximate then. Default: false.
    pub tile_approximate: bool,
    /// A file of weights for the metric `lpips`, for workloads that have it; null is without. Default: null.
    pub lpips: Option<PathBuf>,
}

impl Default for EvalSettings {
    fn default() -> Self {
        Self {
            every: Some(100),
            batches: 4,
            clean_every: None,
            at_start: false,
            patience: None,
            metrics: None,
            crop: CropChoice::Auto,
            tile: TileChoice::None,
            tile_approximate: false,
            lpips: None,
        }
    }
}

impl EvalSettings {
    pub(crate) fn check(&self) -> Result<(), Violation> {
        every("every", self.every)?;
        at_least_one("batches", self.batches)?;
        every("clean_every", self.clean_every)?;
        every("patience", self.patience)?;
        let has_something_to_wait_for = self.patience.is_none() || self.every.is_some();
        let got = self.patience.unwrap_or_default();
        ensure(has_something_to_wait_for, "patience", "null, because eval.every is null", got)
    }
}
