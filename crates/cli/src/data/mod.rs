//! `lowtide data`: what data files hold.

mod command;
mod cost;
mod listing;
mod shards;
mod survey;

pub(crate) use command::run;
