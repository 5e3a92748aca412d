//! Batch files: many samples in one file, as preprocessing scripts leave them.

mod arrangement;
mod batch_file;
mod leaf;
mod pending_field;
mod survey;

pub use batch_file::BatchFile;
pub(crate) use leaf::Leaf;
