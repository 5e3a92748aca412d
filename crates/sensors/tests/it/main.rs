//! Samples of made-up machines, and of this one.

mod any_bytes;
mod cards;
mod control_groups;
mod kit;
mod machine;
mod processes;
mod this_machine;
