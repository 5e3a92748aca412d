//! `lowtide run` with real commands.

mod control_group;
mod folder;
mod kit;
mod output;
mod refusals;
mod resume;
mod rungs;
mod signals;
mod terminal;
mod torch;
