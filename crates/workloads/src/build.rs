//! A workload by its name.

use lowtide_settings::{LoadedSettings, RunSettings, SettingsError};
use lowtide_torch::DeviceFacts;
use lowtide_train::{Result, Workload};

use crate::deblur::Deblur;
use crate::gpt::Gpt;
use crate::qca::Qca;
use crate::scoring::{self, Scoring, Series};

/// The names of all workloads, each with a small configuration.
const EXAMPLES: [(&str, &str); 4] = [
    ("deblur", include_str!("../../../configs/deblur-tiny.yaml")),
    ("gpt", include_str!("../../../configs/gpt-tiny.yaml")),
    ("qca", include_str!("../../../configs/qca-tiny.yaml")),
    ("scoring", include_str!("../../../configs/scoring.yaml")),
];

/// A workload that is ready to train.
pub struct Bundle {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// The settings with the workload's own defaults filled in.
    pub settings: RunSettings,
    /// What a person should know before it trains.
    pub notes: Vec<String>,
}

/// A small configuration of a workload, as text.
#[must_use]
pub fn example(workload: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(name, _)| *name == workload).map(|(_, text)| *text)
}

/// The runs that the settings ask for, where their workload can be several; there may be only one.
pub fn series(loaded: &LoadedSettings) -> Result<Option<Series>> {
    match loaded.settings.workload.as_str() {
        "scoring" => Ok(Some(scoring::series(loaded)?)),
        _ => Ok(None),
    }
}

/// Builds the workload that the settings name, with its model on the device of `facts`.
///
/// Parameters are drawn from the engine's generators, so the caller seeds those first.
pub fn build(loaded: &LoadedSettings, facts: &DeviceFacts) -> Result<Bundle> {
    let workload = loaded.settings.workload.as_str();
    if loaded.settings.train.epochs.is_some() && workload != "scoring" {
        let problem = format!("the data of `{workload}` has no end: say train.steps");
        return Err(SettingsError::refused("train.epochs", problem, &loaded.origins).into());
    }
    if loaded.settings.eval.lpips.is_some() && workload != "deblur" {
        let problem = format!("`{workload}` has no frames to compare");
        return Err(SettingsError::refused("eval.lpips", problem, &loaded.origins).into());
    }
    match workload {
        "deblur" => Deblur::build(loaded, facts.device).map(without_notes),
        "gpt" => Gpt::build(loaded, facts.device).map(without_notes),
        "qca" => Qca::build(loaded, facts.device).map(without_notes),
        "scoring" => {
            let (scoring, settings, notes) = Scoring::build(loaded, facts)?;
            Ok(Bundle { workload: Box::new(scoring), settings, notes })
        }
        other => {
            let names = EXAMPLES.map(|(name, _)| name).join(", ");
            let problem = format!("there is no workload `{other}`: use one of {names}");
            Err(SettingsError::refused("workload", problem, &loaded.origins).into())
        }
    }
}

fn without_notes((workload, settings): (impl Workload + 'static, RunSettings)) -> Bundle {
    Bundle { workload: Box::new(workload), settings, notes: Vec::new() }
}
