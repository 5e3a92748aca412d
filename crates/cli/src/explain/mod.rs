//! `lowtide explain`.

mod args;
mod command;
mod log_file;
mod patch_file;
mod run_log;
mod text;

pub(crate) use args::ExplainArgs;
pub(crate) use command::{in_short, run};
