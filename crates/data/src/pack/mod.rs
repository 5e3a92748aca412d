//! Turns files of samples into a folder of shards.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use lowtide_data::pack::{Job, Options, Start};
//!
//! let mut job = Job::begin(&["data/train".into()], "packed".as_ref(), Options::default(), Start::GoOn)?;
//! job.run(&mut |_| ControlFlow::Continue(()))?;
//! # Ok::<(), lowtide_data::pack::Error>(())
//! ```
//!
//! What is packed is a pure function of the sources and the options: samples stand in the shards in the order of the
//! sources, and a shard ends with the sample that brings it to its size. So a folder that was interrupted is gone on
//! with behind its last whole shard, and ends with the same bytes. [`PACKING`] is there until all is; whoever reads
//! the folder before sees by it that something is missing. One source is in memory at a time, and of a large one a
//! sample.

mod comparison;
mod error;
mod folder;
mod job;
mod notes;
mod options;
mod sources;
mod summary;

pub use error::{Difference, Error, ScoreGaps};
pub use job::{Job, Observer, Progress, Stage, Start};
pub use notes::PACKED;
pub use options::{OnMissing, Options};
pub use summary::{DuplicateIds, OmittedSource, Summary};

pub use crate::set::{PACKING, is_unfinished};
