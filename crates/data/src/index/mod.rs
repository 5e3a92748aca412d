//! What is known of every sample of a data set, without reading any.
//!
//! An [`Index`] holds 16 bytes a sample and about 60 a file besides its name: what each takes in memory, and the hash
//! of its id. It is made by looking at every file once, and saved, so that the next run opens one file instead of
//! thousands. With it are saved size and time of change of every file: those that have changed since are looked at
//! again.

mod current_index;
mod index_file;
mod set_kind;
mod table;

pub use current_index::RebuildReason;
pub(crate) use current_index::{CurrentIndex, open_or_build};
pub(crate) use index_file::INDEX_NAME;
pub use index_file::IndexError;
pub use set_kind::SetKind;
pub(crate) use table::FileFacts;
pub use table::{Builder, FileCost, Index, SampleFacts};

pub use crate::file_stamp::FileStamp;
