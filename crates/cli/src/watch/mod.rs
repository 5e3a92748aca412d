//! `lowtide watch`, and what `lowtide top` shares with it.

mod command;
mod process_run;
mod sampling;
mod target;

pub(crate) use command::run;
pub(crate) use sampling::Sampling;
pub(crate) use target::open_board;
