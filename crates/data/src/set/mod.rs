//! Data sets: files of samples, opened and read as a feed needs them.

pub(crate) mod batch_samples;
mod data_set;
mod folder;
mod open_batch;
mod open_files;
mod options;
mod shard_rows;
pub(crate) mod shard_samples;
mod subset;

pub use data_set::{DataSet, OpenedSet};
pub(crate) use folder::check_finished;
pub use folder::{Folder, KNOWN_ENDINGS, PACKING, is_unfinished};
pub use options::{OpenOptions, SaveIndex};
pub use shard_rows::{see_records, shard_rows};
pub use subset::Subset;
