//! The settings of `model.*` and `data.*` for the workload `qca`.

use serde::{Deserialize, Serialize};

/// How often the operator halves the grid.
pub(crate) const HALVINGS: u32 = 3;

/// The automaton and its episodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// What is applied at each step. Default `unet_unitary`.
    pub operator: OperatorName,
    /// Complex channels of the state. Default 14.
    pub d_state: u32,
    /// Channels of the operator at full resolution; they double at each halving. Default 128.
    pub hidden_channels: u32,
    /// Cells along each side of the torus, a multiple of 8. Default 64.
    pub grid_size: u32,
    /// Applications in an episode. Default 500.
    pub qca_steps: u32,
    /// Applications in a segment, the unit of recompute. Default 10.
    pub segment_steps: u32,
    /// Whether a second episode from the turned state is run, and its difference is part of the loss. Default true.
    pub symmetry: bool,
}

/// An operator by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorName {
    /// A U-Net whose step keeps the norm of the state.
    #[default]
    UnetUnitary,
    /// The same with a ConvLSTM memory at the bottleneck, carried through the episode.
    UnetConvlstm,
}

impl Default for ModelSettings {
    fn default() -> ModelSettings {
        ModelSettings {
            operator: OperatorName::UnetUnitary,
            d_state: 14,
            hidden_channels: 128,
            grid_size: 64,
            qca_steps: 500,
            segment_steps: 10,
            symmetry: true,
        }
    }
}

impl ModelSettings {
    /// What is wrong with them, as (key, problem).
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        let counts = [
            ("model.d_state", self.d_state),
            ("model.hidden_channels", self.hidden_channels),
            ("model.grid_size", self.grid_size),
            ("model.qca_steps", self.qca_steps),
            ("model.segment_steps", self.segment_steps),
        ];
        if let Some((key, _)) = counts.iter().find(|(_, value)| *value == 0) {
            return Some((key, "must be at least 1".to_owned()));
        }
        let multiple = 1 << HALVINGS;
        if !self.grid_size.is_multiple_of(multiple) {
            let problem = format!(
                "the operator halves the grid {HALVINGS} times, so {} must be a multiple of {multiple}",
                self.grid_size
            );
            return Some(("model.grid_size", problem));
        }
        None
    }

    /// Real channels of the state: the real parts, then the imaginary parts.
    pub(crate) fn channels(&self) -> i64 {
        2 * i64::from(self.d_state)
    }
}

/// The start states follow from `seed` and the model's settings, so there is nothing to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_fine_and_wrong_values_are_named() {
        let good = ModelSettings::default();
        assert_eq!(good.problem(), None);
        let key = |settings: ModelSettings| settings.problem().map(|(key, _)| key);
        assert_eq!(key(ModelSettings { d_state: 0, ..good }), Some("model.d_state"));
        assert_eq!(key(ModelSettings { segment_steps: 0, ..good }), Some("model.segment_steps"));
        let (key, problem) = ModelSettings { grid_size: 60, ..good }.problem().unwrap();
        assert_eq!(key, "model.grid_size");
        assert_eq!(problem, "the operator halves the grid 3 times, so 60 must be a multiple of 8");
    }
}
