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

mod choice;
mod clean;
mod emit;
mod error;
mod eval;
mod frames;
mod layers;
mod load;
mod memory;
mod micro_batch;
mod nearest;
mod optimizer;
mod origin;
mod overrides;
mod precision;
mod read;
mod recompute;
mod run;
mod save;
mod scalar;
mod shown;
mod spill;
mod train;
mod tree;
mod typed;
mod watch;
mod wrong;
mod yaml;

pub use clean::Clean;
pub use emit::to_yaml;
pub use error::SettingsError;
pub use eval::EvalSettings;
pub use frames::{CropChoice, TileChoice};
pub use load::Loaded;
pub use memory::MemorySettings;
pub use micro_batch::MicroBatchChoice;
pub use optimizer::OptimizerSettings;
pub use origin::{Origin, Origins};
pub use overrides::Override;
pub use precision::Precision;
pub use read::{FILE_LIMIT, read};
pub use recompute::Recompute;
pub use run::RunSettings;
pub use save::SaveSettings;
pub use spill::Spill;
pub use train::TrainSettings;
pub use typed::typed;
pub use watch::WatchSettings;
