//! `lowtide run`: keeps a training command of any kind alive.

mod command;
mod dashes;
mod dry_run;
mod exit;
mod gap;
mod inside;
mod memory;
mod narration;
mod resume;

pub(crate) use command::run;
pub(crate) use dashes::without_dashes;
