//! `lowtide run` with real commands.

mod control_group;
mod flags;
mod folder;
mod kit;
mod output;
mod refusals;
mod resume;
mod retries;
mod signals;
mod source;
mod terminal;
mod torch;
