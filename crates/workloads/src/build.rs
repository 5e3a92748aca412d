//! A workload by its name.

use lowtide_settings::{Loaded, RunSettings, SettingsError};
use lowtide_torch::tch::Device;
use lowtide_train::{Result, Workload};

use crate::gpt::Gpt;
use crate::qca::Qca;
use crate::scoring::{self, Scoring};

/// The names of all workloads.
const NAMES: [&str; 3] = ["gpt", "qca", "scoring"];

/// A workload that is ready to train.
pub struct Built {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// The settings with the workload's own defaults filled in.
    pub settings: RunSettings,
}

/// Several runs that one configuration asks for, one after the other.
pub struct Series {
    /// The settings of all of them, with the workload's own defaults filled in.
    pub settings: RunSettings,
    /// The runs.
    pub runs: Vec<SeriesRun>,
}

/// One of several runs.
pub struct SeriesRun {
    /// Its name, which can be that of a folder.
    pub name: String,
    /// Its settings, which ask for it alone.
    pub loaded: Loaded,
}

/// The runs that the settings ask for, where their workload can be several; there may be only one.
pub fn series(loaded: &Loaded) -> Result<Option<Series>> {
    match loaded.settings.workload.as_str() {
        "scoring" => Ok(Some(scoring::series(loaded)?)),
        _ => Ok(None),
    }
}

/// Builds the workload that the settings name, with its model on `device`.
///
/// Parameters are drawn from the engine's generators, so the caller seeds those first.
pub fn build(loaded: &Loaded, device: Device) -> Result<Built> {
    match loaded.settings.workload.as_str() {
        "gpt" => {
            let (gpt, settings) = Gpt::build(loaded, device)?;
            Ok(Built { workload: Box::new(gpt), settings })
        }
        "qca" => {
            let (qca, settings) = Qca::build(loaded, device)?;
            Ok(Built { workload: Box::new(qca), settings })
        }
        "scoring" => {
            let (scoring, settings) = Scoring::build(loaded, device)?;
            Ok(Built { workload: Box::new(scoring), settings })
        }
        other => {
            let problem = format!("there is no workload `{other}`: use one of {}", NAMES.join(", "));
            Err(SettingsError::refused("workload", problem, &loaded.origins).into())
        }
    }
}
