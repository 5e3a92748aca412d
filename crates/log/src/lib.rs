//! What training logs have in common, whoever wrote them.
//!
//! **What it does.** It reads the [steps] that a log names or draws as a [progress bar](bar), the [time]
//! of a line, the [frames] of a traceback, [what the program was doing](activity) by them, and [which
//! tracebacks](tracebacks) a program may have ended by, the prefixes of ranks and loggers before all of these, which [rank] of a job failed and [which lost a peer](lost_peers), the batch of a step as trainers print it ([`BatchReport`]), tables of cards ([`CardTable`]), and the
//! encoding of a file ([`TextDecoder`]).
//!
//! **What it leaves out.** Out-of-memory errors are read by crate `oom`; what follows from a stack or a step is up to
//! whoever asks. No line is ever wrong: what is not understood is `None`.
//!
//! **Where to start reading.** `step.rs`, then `bar.rs` and `traceback.rs`.
//!
//! ```
//! let log = b"iter 120: loss 2.31\nLoading checkpoint shards: 50%|#####  | 2/4 [00:03<00:03]\n";
//! assert_eq!(lowtide_log::steps(log).next_back(), Some(120));
//! ```

mod activity;
mod bar;
mod batch;
mod card_table;
mod clock;
mod encoding;
mod frame;
mod line;
mod number;
mod rank;
mod step;
mod traceback;

pub use activity::{Activity, activity, activity_of_stack, makes_a_layer, recomputes};
pub use bar::{ProgressBar, bar};
pub use batch::{BatchReport, BatchUnit};
pub use card_table::{CardProcess, CardRow, CardTable};
pub use clock::time;
pub use encoding::TextDecoder;
pub use frame::{StackFrame, frames};
pub use line::{is_of_group, last_lines, shared_margin, without_colours, without_margin};
pub use rank::{LostPeer, first_failed_rank, lost_peers, rank};
pub use step::{shows_progress, steps};
pub use traceback::{TRACEBACK_HEADER, Traceback, TracebackKind, traceback_in_json, tracebacks};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
