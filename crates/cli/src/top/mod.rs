//! `lowtide top`.

mod cells;
mod chart;
mod command;
mod command_run;
mod figures;
mod machine;
mod screen;

pub(crate) use command::run;
