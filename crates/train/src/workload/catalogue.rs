//! The workloads that a program has, by name, and how each is made from settings.

use lowtide_settings::{LoadedSettings, RunSettings, SettingsError};
use lowtide_torch::DeviceFacts;

use super::definition::Workload;
use crate::Result;

/// A workload that is ready to train.
pub struct Bundle {
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// The settings with the workload's own defaults filled in. A run keeps these, and resumes with them.
    pub settings: RunSettings,
    /// What a person should know before it trains.
    pub notes: Vec<String>,
}

impl Bundle {
    /// A workload that there is nothing to say about.
    pub fn new(workload: impl Workload + 'static, settings: RunSettings) -> Bundle {
        Bundle { workload: Box::new(workload), settings, notes: Vec::new() }
    }
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
    pub loaded: LoadedSettings,
}

/// A kind of workload: its name, and how one is made from settings.
///
/// [`Recipe::new`] is enough for most; `Recipe { has_epochs: true, ..Recipe::new(...) }` adds what only some have.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// The name in settings (`workload: NAME`).
    pub name: &'static str,
    /// A small configuration, which `train NAME` takes.
    pub example: &'static str,
    /// Makes one whose model is on the device. Parameters are drawn from the engine's generators, which are seeded before.
    pub build: fn(&LoadedSettings, &DeviceFacts) -> Result<Bundle>,
    /// The runs that settings ask for, where they can be several.
    pub series: Option<fn(&LoadedSettings) -> Result<Series>>,
    /// Whether its data has an end: `build` then turns `train.epochs` into `train.steps`.
    pub has_epochs: bool,
    /// Whether it has frames that `eval.lpips` can compare.
    pub has_lpips: bool,
}

impl Recipe {
    /// One run, data without an end, no frames.
    #[must_use]
    pub const fn new(
        name: &'static str,
        example: &'static str,
        build: fn(&LoadedSettings, &DeviceFacts) -> Result<Bundle>,
    ) -> Recipe {
        Recipe { name, example, build, series: None, has_epochs: false, has_lpips: false }
    }

    /// Refuses settings that other workloads take, and this one would not look at.
    fn check(&self, loaded: &LoadedSettings) -> Result<(), SettingsError> {
        let name = self.name;
        if loaded.settings.train.epochs.is_some() && !self.has_epochs {
            let problem = format!("the data of `{name}` has no end: say train.steps");
            return Err(SettingsError::refused("train.epochs", problem, &loaded.origins));
        }
        if loaded.settings.eval.lpips.is_some() && !self.has_lpips {
            let problem = format!("`{name}` has no frames to compare");
            return Err(SettingsError::refused("eval.lpips", problem, &loaded.origins));
        }
        Ok(())
    }
}

/// All workloads of a program.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(pub &'static [Recipe]);

impl Catalogue {
    /// The names, in the order of the catalogue.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|recipe| recipe.name)
    }

    /// The small configuration of a workload, as text.
    #[must_use]
    pub fn example(self, workload: &str) -> Option<&'static str> {
        self.find(workload).map(|recipe| recipe.example)
    }

    /// The runs that the settings ask for, where their workload can be several; there may be only one.
    ///
    /// # Errors
    ///
    /// Settings that the workload refuses.
    pub fn series(self, loaded: &LoadedSettings) -> Result<Option<Series>> {
        let series = self.find(&loaded.settings.workload).and_then(|recipe| recipe.series);
        series.map(|series| series(loaded)).transpose()
    }

    /// Makes the workload that the settings name, with its model on the device of `facts`.
    ///
    /// Parameters are drawn from the engine's generators, so the caller seeds those first.
    ///
    /// # Errors
    ///
    /// A name that is not in the catalogue, settings that the workload refuses, data that cannot be read, or a model that
    /// does not fit.
    pub fn build(self, loaded: &LoadedSettings, facts: &DeviceFacts) -> Result<Bundle> {
        let workload = &loaded.settings.workload;
        let Some(recipe) = self.find(workload) else {
            let names = self.names().collect::<Vec<_>>().join(", ");
            let problem = format!("there is no workload `{workload}`: use one of {names}");
            return Err(SettingsError::refused("workload", problem, &loaded.origins).into());
        };
        recipe.check(loaded)?;
        (recipe.build)(loaded, facts)
    }

    fn find(self, workload: &str) -> Option<&'static Recipe> {
        self.0.iter().find(|recipe| recipe.name == workload)
    }
}
