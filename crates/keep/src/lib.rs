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
//! **Where to start reading.** `keep.rs` is the loop. What it decides is pure: `ending.rs` (was it memory?),
//! `decision.rs` (what next?), `plan.rs` (but for its look for a checkpoint), `recipe.rs`, `template.rs`, `preset.rs`,
//! `python.rs`, `launcher.rs`, `cause.rs`. What touches the system is in `supervise.rs` (one start), `attend.rs`
//! (signals, patience, what is left), `passing.rs` (output), `terminal.rs`, `checkpoint.rs`, `memory.rs` and
//! `kernel_log.rs`.

mod attend;
mod batch;
mod cause;
mod checkpoint;
mod config_file;
mod decision;
mod ending;
mod error;
mod found;
mod keep;
mod kernel_log;
mod launcher;
mod log;
mod memory;
mod passing;
mod plan;
mod preset;
mod python;
mod recipe;
mod shell;
mod story;
mod supervise;
mod tail;
mod template;
mod terminal;
mod told;
mod told_batch;
mod words;

pub use batch::Batch;
pub use decision::Ending;
pub use ending::{End, Evidence, Outcome};
pub use error::KeepError;
pub use keep::{OUT_OF_MEMORY, Options, is_free, keep, new_folder};
pub use memory::{CardPeak, Peak};
pub use plan::{ConfigCopy, Launch, Plan, Request};
pub use preset::{Preset, Surroundings};
pub use story::{SCHEMA, Start, Story};
pub use template::Template;
pub use told::Told;
pub use told_batch::ToldBatch;
pub use words::quoted;
