//! PyTorch's caching allocator, simulated byte for byte.
//!
//! **What it does.** A history that PyTorch recorded ([`Entry`]) becomes the requests that made it ([`Recording`]); a [replay](Recording::replay) sends
//! these through an [`Allocator`] under the same settings or under others: peaks, retries and out-of-memory errors as they would have been.
//! From recordings of a program at a few sizes, [`Fit`] has its requests at another, and the peak that these come to.
//!
//! **What it leaves out.** Pools of CUDA graphs and `MemPool`, and `cudaMallocAsync`. It reads no file and prints nothing.
//!
//! **Where to start reading.** `allocator/malloc.rs`, then `replay.rs`.
//!
//! ```
//! use lowtide_sim::{AddressOrder, Allocator, AllocatorSettings, TorchVersion};
//!
//! let settings = AllocatorSettings::parse("expandable_segments:True", TorchVersion::default())?;
//! let mut allocator = Allocator::new(settings, None, None, AddressOrder::Ascending);
//! let block = allocator.malloc(3 << 20, 0).expect("nothing limits it");
//! assert_eq!(allocator.statistics().reserved.current, 20 << 20);
//! allocator.free(block);
//! # Ok::<(), lowtide_sim::SimError>(())
//! ```

mod allocator;
mod block;
mod entry;
mod error;
mod fit;
mod host;
mod pool;
mod recording;
mod recording_file;
mod replay;
mod settings;
mod snapshot;
mod start;
mod statistics;
mod timeline;
mod version;
mod what_if;

pub use allocator::{AddressOrder, Allocator};
pub use block::BlockId;
pub use entry::{Action, Entry};
pub use error::SimError;
pub use fit::{Fit, Pairing, Prediction, SizedRecording, SizedWhatIf, Verdict};
pub use host::HostHistory;
pub use recording::Recording;
pub use recording_file::RECORDING_MAGIC;
pub use replay::{Conditions, Moment, Placement, Replay};
pub use settings::AllocatorSettings;
pub use snapshot::{DeviceHistory, Frame, Segment, SegmentBlock, Snapshot, Source};
pub use statistics::{Gauge, Statistics};
pub use timeline::{BlockLife, Level, Reservation, SIZE_CLASSES, Timeline, size_class};
pub use version::TorchVersion;
pub use what_if::WhatIf;

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
