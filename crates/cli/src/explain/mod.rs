//! `lowtide explain`.

mod command;
mod html;
mod log_file;
mod memory_reports;
mod named_files;
mod page;
mod patch_file;
mod run_log;
mod text;
mod words;

pub(crate) use command::{beyond_the_batch, in_short, run};
pub(crate) use words::held;
