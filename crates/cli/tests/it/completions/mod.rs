//! Completions, typed into real shells.

mod shell;
mod typed;

pub(crate) use shell::Shell;
pub(crate) use typed::check;
