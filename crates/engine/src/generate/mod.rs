//! `lowtide generate`: made-up data as files.

mod command;
mod failure;
mod films;
mod out_folder;
mod progress;
mod scoring;
mod scoring_args;
mod scoring_files;

pub(crate) use command::{GenerateArgs, run};
