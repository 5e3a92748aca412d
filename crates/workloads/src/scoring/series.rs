//! The models that the settings name, each as a run of its own.

use lowtide_settings::{LoadedSettings, RunSettings, SettingsError};
use lowtide_train::{Series, SeriesRun};

use super::settings::{ModelName, ModelSettings};
use super::workload::{checked_settings, with_data};

/// A run for each model. Random numbers start from the same seed in all of them.
pub(crate) fn series(loaded: &LoadedSettings) -> Result<Series, SettingsError> {
    let (model, settings) = checked_settings(loaded)?;
    // Said here for all, so that a series that goes on has the same steps and evaluations on the same data.
    let settings = with_data(settings, &loaded.origins)?;
    let all = LoadedSettings { settings: settings.clone(), origins: loaded.origins.clone() };
    let runs = model.run.iter().map(|name| SeriesRun { name: name.to_string(), loaded: alone(*name, &model, &all) });
    Ok(Series { runs: runs.collect(), settings })
}

/// The settings for one of the models.
fn alone(name: ModelName, model: &ModelSettings, loaded: &LoadedSettings) -> LoadedSettings {
    let model = ModelSettings { run: vec![name], ..model.clone() };
    let model = serde_json::to_value(model).expect("plain numbers and names");
    let settings = RunSettings { model, ..loaded.settings.clone() };
    LoadedSettings { settings, origins: loaded.origins.clone() }
}
