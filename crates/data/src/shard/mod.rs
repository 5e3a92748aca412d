//! Lowtide's own file of samples, laid out for reading under a budget; `docs/shard-format.md` describes every byte.
//!
//! A sample is a list of named tensors, and one record of the file. [`Reader::open`] reads the index alone, 48 bytes
//! a record; one record or a run of neighbours is then read with one call into a buffer that the caller has reserved,
//! and is checked against its checksum every time. Nothing is mapped into memory: a mapped page counts against
//! nobody's budget until it does, and a disk error in it is a signal instead of an error. What was read is let go
//! from the page cache, which would otherwise hold it a second time.
//!
//! [`Writer`] writes a file under another name and gives it its own when it is whole, so a file that is there is
//! complete: who writes many and is stopped goes on with the first that is missing.

mod direct_file;
mod error;
mod field_kind;
mod field_names;
mod format;
mod id;
mod reader;
pub(crate) mod record;
mod walk;
mod writer;

pub use error::{Error, Part};
pub use field_kind::FieldKind;
pub(crate) use field_names::FieldNames;
pub use id::hash_of_id;
pub use reader::{Reader, RecordRun, Scratch};
pub use record::{Record, Tensor};
pub(crate) use walk::ShardWalk;
pub use writer::{Compression, ShardSummary, Writer};
