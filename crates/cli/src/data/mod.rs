//! `lowtide data`: what data files hold.

mod args;
mod command;
mod cost;
mod listing;
mod shards;
mod survey;

pub(crate) use args::DataArgs;
pub(crate) use command::run;
