//! Command lines.

mod environment;
pub(crate) mod options;
mod script;
mod variables;
mod words;

pub use environment::{set_value, sets};
pub use options::{replace, value, values};
pub use script::{at_script, is_module, is_python};
pub use words::{Word, quoted, split, words};
