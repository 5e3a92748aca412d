//! Reports in words that no family knows: a program of its own says that it could not get memory.
//!
//! Looked for only where nothing else was found, near the end of a log, so that it may look at every line and at what follows
//! it. The words are everyday ones: a line counts where it has the shape of an error and nothing makes it talk.

mod claim;
mod report;
mod told;
mod told_abroad;
mod told_in_chinese;
mod words;

pub use report::scan_last_resort;
pub use told::is_of_oneself;
pub(crate) use told_in_chinese::OWN as OWN_IN_CHINESE;
