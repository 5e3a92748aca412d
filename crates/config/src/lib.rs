//! The settings of other programs' configurations, each with its place in the text.
//!
//! **What it does.** [`Config::parse`] reads Python assignments and arguments, YAML, JSON or a command line into
//! [`Setting`]s: the keys that lead to a value, the value, and where it stands. [`Config::with`] writes another value
//! there and leaves every comment and blank as it was.
//!
//! **What it leaves out.** What a setting means, files, and anything that a configuration computes: a value that is not
//! written down plainly is no setting, only listed as a [`Gap`]. Lowtide's own settings are the crate `settings`.
//!
//! **Where to start reading.** `config.rs`; then one file or folder for each way of writing. [`python::tree`] is for those
//! who look for more in a script than its settings.

pub mod command;
mod config;
mod gap;
mod json;
mod number;
pub mod python;
mod yaml;

pub use config::{Config, ConfigError, Scope, Setting, Syntax, unquoted};
pub use gap::{Gap, GapKind};
pub use number::{printed_number, whole_number};
