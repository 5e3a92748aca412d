//! What people type: the arguments of every command, with the help that they carry.
//!
//! **What it does.** It declares the command line of `lowtide` as one value, [`Lowtide`], and turns flags into the settings
//! that they stand for. The front parses all of it, so help and mistakes are answered without LibTorch; the engine parses
//! [`ProgramArgs`] again from the same words, and so does a program that brings its own models. Completions,
//! manual pages and the reference are made from the same declaration.
//!
//! **What it leaves out.** It carries nothing out, prints nothing, and opens no file.
//!
//! **Where to start reading.** `lowtide.rs` lists the commands; each has a file of its name.

mod completions;
mod data;
mod doctor;
mod engine;
mod eval;
mod explain;
mod generate;
mod lowtide;
mod manual;
mod overrides;
mod pack;
mod program;
mod replay;
mod report;
mod run;
mod settings;
mod styles;
mod top;
mod train;
mod watch;

pub use completions::{CompletionsArgs, Shell};
pub use data::{CostArgs, DataArgs};
pub use doctor::DoctorArgs;
pub use engine::EngineArgs;
pub use eval::EvalArgs;
pub use explain::ExplainArgs;
pub use generate::{Data, FilmArgs, Format, GenerateArgs, Layout, ScoringArgs};
pub use lowtide::{Command, Lowtide};
pub use manual::ManualArgs;
pub use pack::PackArgs;
pub use program::{ProgramArgs, ProgramCommand};
pub use replay::{ReplayArgs, SizedFile};
pub use report::ReportArgs;
pub use run::{RunArgs, WatchMemory};
pub use settings::SettingArgs;
pub use styles::{STYLES, with_heading, with_label};
pub use top::TopArgs;
pub use train::{ScoringFlags, TrainArgs};
pub use watch::WatchArgs;
