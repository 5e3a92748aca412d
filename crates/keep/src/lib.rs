//! Keeps any training command alive.
//!
//! **What it does.** [`keep`] runs a command as if it were started alone: its output passes through with a copy in a
//! log, signals reach it, its exit code comes back, and no process of it is left. When it ends because memory ran
//! out, it is started again one rung lower: a smaller micro-batch, more accumulation, the same effective batch
//! ([`Batch::rungs`]). How a rung is put on a command line, into the environment or a configuration file is a
//! [`Template`], of a [`Preset`] or the user's own; [`Plan`] joins them. A [`Story`] tells what happened.
//!
//! **What it leaves out.** It prints nothing and parses no arguments: what is worth telling goes to a closure as
//! [`Told`]. It knows no LibTorch and nothing of what the command computes.
//!
//! **Where to start reading.** `keeper/keep.rs` is the loop. What it decides is pure: `keeper/ending.rs` (was it
//! memory?), `keeper/decision.rs` (what next?), all of `command` (but for its look for a checkpoint) and
//! `output/cause.rs`. What touches the system is in `process`, `evidence`, `output/passing.rs` and
//! `command/checkpoint.rs`.

mod command;
mod error;
mod evidence;
mod keeper;
mod output;
mod process;
mod record;

pub use command::batch::Batch;
pub use command::plan::{ConfigCopy, Launch, Plan, Request};
pub use command::preset::{Preset, Surroundings};
pub use command::template::Template;
pub use command::words::quoted;
pub use error::KeepError;
pub use evidence::memory::{CardPeak, Peak};
pub use keeper::decision::Ending;
pub use keeper::ending::{End, Evidence, Outcome};
pub use keeper::keep::{OUT_OF_MEMORY, Options, is_free, keep, new_folder};
pub use output::told_batch::ToldBatch;
pub use record::story::{SCHEMA, Start, Story};
pub use record::told::Told;
