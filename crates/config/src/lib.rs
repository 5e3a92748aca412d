//! The settings of other programs' configurations, each with its place in the text.
//!
//! **What it does.** [`Config::parse`] reads Python assignments and arguments, YAML, JSON or a command line into
//! [`Setting`]s: the keys that lead to a value, the value, and where it stands. [`Config::with`] writes another value
//! there and leaves every comment and blank as it was.
//!
//! **What it leaves out.** What a setting means, files, and anything that a configuration computes: a value that is not
//! written down plainly is no setting, only listed as [`Unclear`]. Lowtide's own settings are the crate `settings`.
//!
//! **Where to start reading.** `config.rs`; then one file for each way of writing.

mod command;
mod config;
mod json;
mod number;
mod python;
mod unclear;
mod yaml;

pub use config::{Config, ConfigError, Setting, Syntax, unquoted};
pub use number::whole_number;
pub use unclear::{Unclear, UnclearKind};
