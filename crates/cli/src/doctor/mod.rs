//! `lowtide doctor`.

mod allocator;
mod command;
mod facts;
mod findings;
mod text;
mod variables;

pub(crate) use command::run;
