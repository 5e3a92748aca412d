//! Samples of made-up machines.

mod any_bytes;
mod cards;
mod control_groups;
mod kit;
mod machine;
mod processes;
mod prometheus;
