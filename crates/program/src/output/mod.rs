//! What people and programs see of a command.

mod comparison;
mod console;
mod print;
mod run_lines;

pub(crate) use comparison::comparison;
pub(crate) use console::Console;
pub(crate) use print::{print_json, print_summary, report_panic, speak_as, to_stderr, to_stdout};
pub(crate) use run_lines::RunHeader;
