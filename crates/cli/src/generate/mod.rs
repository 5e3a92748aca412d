//! `lowtide generate`: made-up data as files.

mod command;
mod films;
mod out_folder;
mod scoring;
mod scoring_files;
mod write_progress;

pub(crate) use command::run;
