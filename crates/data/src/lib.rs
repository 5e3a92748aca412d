//! Training data that is larger than memory: samples in their order, under one number of bytes.
//!
//! **The order.** [`order`] says in which order the samples of an epoch come, as a pure function of a seed; [`policy`]
//! decides from it what to keep, [`simulation`] tells what that reads, and [`budget`] shares one number of bytes among
//! all that hold data. [`feed`] puts them together: samples in their order, read ahead by threads under one budget.
//!
//! **The data set.** [`DataSet`] is a folder of shards or of batch files, which a feed reads from; its
//! [`index`](mod@index) says what each sample takes before any is read. A sample comes as [`BufferedSample`]: a part of
//! one buffer that all samples of a shard share, so that memory is what was said of it, and goes back to the system with
//! the shard. [`Subset`] is some of its samples.
//!
//! **The files.** [`BatchFile`] says what a file of others means in samples and reads them; the files themselves are
//! `lowtide-tensorfile`'s. [`shard`] is Lowtide's own file, and [`pack`] makes a folder of them. [`Scores`] is a table
//! of scores beside the samples.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use lowtide_core::Bytes;
//! use lowtide_data::feed::{Feed, FeedOptions, Store};
//! use lowtide_data::order::{Cursor, Order, Shuffle};
//! use lowtide_data::{DataSet, OpenOptions};
//!
//! let set = Arc::new(DataSet::open("data/train".as_ref(), OpenOptions::default())?.set);
//! let order = Order::new(set.layout().clone(), Shuffle::Window { shards: 8 }, 1);
//! let mut feed = Feed::start(set, &order, Cursor::default(), FeedOptions::new(Bytes::from_mib(512)))?;
//! while let Some(sample) = feed.take()? {
//!     println!("{:?} {:?}", sample.at, sample.get("scores"));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it leaves out: turning samples into tensors of an engine, and what to train on.
//!
//! Where to start: `batch/batch_file.rs` tells what a sample is; `set/data_set.rs` puts files together,
//! `set/batch_samples.rs` and `set/shard_samples.rs` lay their samples out; `feed/lookahead.rs` decides what is read.

mod batch;
pub mod budget;
mod error;
pub mod feed;
mod file_stamp;
pub mod index;
pub mod order;
pub mod pack;
pub mod policy;
mod samples;
mod set;
pub mod shard;
pub mod simulation;

pub use batch::BatchFile;
pub use error::DataError;
pub use samples::{
    BufferedSample, Field, FieldSummaries, FieldSummary, FieldValue, Sample, Scores, Shapes, UnsupportedField,
    tensors_of, write_scores,
};
pub use set::{DataSet, Folder, KNOWN_ENDINGS, OpenOptions, OpenedSet, SaveIndex, Subset, see_records, shard_rows};
pub use shard::FieldKind;
