//! `lowtide run` with real commands.

mod checkpoints;
mod control_group;
mod flags;
mod folder;
mod inside;
mod kit;
mod output;
mod refusals;
mod reserve;
mod resume;
mod retries;
mod signals;
mod source;
mod terminal;
mod torch;
