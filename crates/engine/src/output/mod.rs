//! What people and programs see of a command.

mod comparison;
mod console;
mod memory_line;
mod outcome_lines;
mod print;
mod run_header;
mod speed;

pub(crate) use comparison::comparison;
pub(crate) use console::Console;
pub(crate) use print::{print_json, print_summary, to_stderr};
pub(crate) use run_header::RunHeader;
