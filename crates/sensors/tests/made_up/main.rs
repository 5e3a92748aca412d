//! Samples of made-up machines.

mod cards;
mod control_groups;
mod kit;
mod machine;
mod processes;
mod prometheus;
