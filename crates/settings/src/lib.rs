//! A run's settings: typed, merged, resolved.
//!
//! **What it does.** It reads a settings file in YAML, lays `--set key=value` and named flags over it, and turns the sum into
//! [`RunSettings`], whose every field has a type, a unit and a default. Whatever is wrong comes back as one
//! [`SettingsError`] that names the place (a line of the file, or what was typed) and the mend.
//!
//! **What it leaves out.** It does not know what a workload's `model` and `data` hold: these stay plain values until the
//! workload reads them with [`typed`]. It does not resolve what depends on the machine (a line of `90%`, a micro-batch of
//! `auto`), prints nothing, and opens no file except in [`read`].
//!
//! **Where to start reading.** [`RunSettings`] is what a run is made of; [`RunSettings::load`] shows the whole way from text
//! to settings, and [`to_yaml`] the way back.

mod error;
mod groups;
mod load;
mod source;
mod values;
mod yaml_writer;

pub use error::SettingsError;
pub use groups::eval::EvalSettings;
pub use groups::memory::MemorySettings;
pub use groups::optimizer::OptimizerSettings;
pub use groups::ranks::RanksSettings;
pub use groups::run::RunSettings;
pub use groups::save::SaveSettings;
pub use groups::train::TrainSettings;
pub use groups::watch::WatchSettings;
pub use load::conversion::typed;
pub use load::loaded_settings::LoadedSettings;
pub use source::file::{FILE_LIMIT, read};
pub use source::origin::{Origin, Origins};
pub use source::overrides::Override;
pub use values::sizes::{CropChoice, MicroBatchChoice, TileChoice};
pub use values::words::{Backend, Clean, Graphs, Precision, Recompute, Shard, Spill};
pub use yaml_writer::to_yaml;
