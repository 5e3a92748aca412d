//! A workload by its name.

use lowtide_settings::{LoadedSettings, RunSettings, SettingsError};
use lowtide_torch::DeviceFacts;
use lowtide_train::{Result, Workload};

use crate::deblur::Deblur;
use crate::gpt::Gpt;
use crate::qca::Qca;
use crate::scoring::{self, Scoring};
use crate::series::Series;

/// The names of all workloads.
const NAMES: [&str; 4] = ["deblur", "gpt", "qca", "scoring"];

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
    match workload {
        "deblur" => Some(include_str!("../../../configs/deblur-tiny.yaml")),
        "gpt" => Some(include_str!("../../../configs/gpt-tiny.yaml")),
        "qca" => Some(include_str!("../../../configs/qca-tiny.yaml")),
        "scoring" => Some(include_str!("../../../configs/scoring.yaml")),
        _ => None,
    }
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
    let built = |workload: Box<dyn Workload>, settings| Bundle { workload, settings, notes: Vec::new() };
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
        "deblur" => {
            let (deblur, settings) = Deblur::build(loaded, facts.device)?;
            Ok(built(Box::new(deblur), settings))
        }
        "gpt" => {
            let (gpt, settings) = Gpt::build(loaded, facts.device)?;
            Ok(built(Box::new(gpt), settings))
        }
        "qca" => {
            let (qca, settings) = Qca::build(loaded, facts.device)?;
            Ok(built(Box::new(qca), settings))
        }
        "scoring" => {
            let (scoring, settings, notes) = Scoring::build(loaded, facts)?;
            Ok(Bundle { workload: Box::new(scoring), settings, notes })
        }
        other => {
            let problem = format!("there is no workload `{other}`: use one of {}", NAMES.join(", "));
            Err(SettingsError::refused("workload", problem, &loaded.origins).into())
        }
    }
}
