//! `lowtide run`: keeps a training command of any kind alive.

mod command;
mod dry_run;
mod exit;
mod narration;

pub(crate) use command::{RunArgs, run};
