//! Levers for trees that are boosted on a device (XGBoost, LightGBM, CatBoost): they have no batch and no activations.

use super::case::Case;
use super::list::{ALL, List, NOT_MODEL, NOT_NUMBERS};
use crate::Lever;

/// What messages and stacks of these libraries name.
const LIBRARIES: &[&str] = &["xgboost", "XGBoost", "gpu_hist", "lightgbm", "LightGBM", "catboost", "CatBoost"];

impl Case<'_> {
    /// Whether trees are boosted.
    pub(super) fn boosts_trees(&self) -> bool {
        self.message_or_frames(LIBRARIES)
    }
}

impl List<'_> {
    /// The data lies on the device as a whole, and histograms grow with bins, features and depth.
    pub(super) fn boosting(&mut self) {
        self.add(
            Lever::SmallerInput,
            "Less data on the device: QuantileDMatrix in place of DMatrix (XGBoost), float32, fewer rows or features, or the \
             library's external memory",
            NOT_NUMBERS,
        );
        self.add(
            Lever::SmallerModel,
            "Smaller trees and histograms: lower max_depth, max_bin (border_count) or num_leaves",
            NOT_MODEL,
        );
        self.other_card();
        self.add(
            Lever::Offload,
            "Train on the CPU, in the machine's memory (device=cpu, tree_method=hist, task_type=CPU); slower",
            ALL,
        );
    }
}
