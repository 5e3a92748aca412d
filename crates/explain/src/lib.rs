//! From a training log to a cause, advice and a patch.
//!
//! **What it does.** [`explain`] takes a log and what is known besides ([`Context`]: configurations, a command line)
//! and gives a [`Verdict`] for every out-of-memory event, the last one first: what ran out, why, which tensor it was,
//! what to change and what the configuration looks like after that. A log too large for memory goes through a
//! [`Investigation`] in pieces.
//!
//! **What it leaves out.** Files, printing and the machine itself: text comes in, values go out. Whoever calls reads
//! the log, shows the verdict and writes the patch.
//!
//! **Where to start reading.** `investigation.rs` walks the log; `log/event.rs` joins what the log says several times
//! into one event; `explain.rs` makes a verdict of it; `cause/` holds the arithmetic; `facts.rs` joins it with what
//! crate `trainers` says of the settings, and `culprit/`, `advice/` and `patch/` work with both.
//!
//! ```
//! use lowtide_explain::{Cause, Context, explain};
//!
//! let log = b"step 7 loss 2.1\nCUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 23.70 GiB total capacity; \
//!             14.90 GiB already allocated; 1.10 GiB free; 21.80 GiB reserved in total by PyTorch)\n";
//! let verdicts = explain(log, &Context::default());
//! assert_eq!(verdicts[0].cause, Cause::Fragmentation);
//! assert_eq!(verdicts[0].step, Some(7));
//! ```

mod advice;
mod another_day;
mod block;
mod cause;
mod code_line;
mod culprit;
mod explain;
mod explanation;
mod facts;
mod got_over;
mod holding;
mod investigation;
mod json_end;
mod log;
mod model;
mod notebook;
mod own_heap;
mod patch;
mod post;
mod report;
mod sharing;
mod verdict;

pub use cause::{CheckpointWork, Possibility};
pub use code_line::CodeLine;
pub use explanation::{Context, Explanation, NotMemory};
pub use holding::{Holding, HoldingKind};
pub use investigation::{Investigation, explain};
pub use log::{RankError, RankErrors, Remark};
pub use lowtide_config::{Config, ConfigError, Syntax};
pub use lowtide_log::Activity;
pub use lowtide_oom::{DeviceKind, Engine, LookAlike, Place, Source};
pub use model::{Account, Row};
pub use notebook::notebook_text;
pub use own_heap::OwnHeap;
pub use patch::{Edit, Patch, PatchError};
pub use report::{MemoryReport, MemorySnapshot, SnapshotError, TensorGroup};
pub use verdict::{Advice, Cause, Culprit, Holder, Lever, Relation, Verdict, Work};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
