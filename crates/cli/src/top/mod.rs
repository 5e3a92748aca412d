//! `lowtide top`.

mod cells;
mod chart;
mod command;
mod machine;
mod screen;

pub(crate) use command::{TopArgs, run};
