//! The ways to what stands outside the command line.

use std::ffi::OsString;
use std::path::Path;

/// Ways to variables, files and cards.
pub struct Access<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
    /// How many cards there are.
    pub cards: &'a dyn Fn() -> u64,
}
