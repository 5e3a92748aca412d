//! What is known of every sample of a data set, without reading any.
//!
//! An [`Index`] holds 16 bytes a sample and about 60 a file besides its name: what each takes in memory, and the hash
//! of its id. It is made by looking at every file once, and saved, so that the next run opens one file instead of
//! thousands. With it are saved size and time of change of every file: those that have changed since are looked at
//! again.

mod look;
mod open;
mod saved;
mod table;

pub(crate) use look::Looked;
pub use look::SetKind;
pub use open::Rebuilt;
pub(crate) use open::{Opened, open_or_build};
pub use saved::Unusable;
pub use table::{Builder, FileCost, FileStamp, Index, SampleFacts};
