//! Several runs that one configuration asks for.

use lowtide_settings::{LoadedSettings, RunSettings};

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
