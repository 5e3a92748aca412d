//! Python files: their settings, and their syntax tree for those who look for more.

mod context;
pub(crate) mod reader;
#[cfg(test)]
mod tests;
mod tree;

pub use tree::{is_name, last_name, tree};
