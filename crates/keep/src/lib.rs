//! Keeps any training command alive.
//!
//! **What it does.** [`keep`] runs a command as if it were started alone: its output passes through with a copy in a
//! log, signals reach it, and no process of it is left. When it ends because memory ran out, it is started again one
//! rung lower: a smaller micro-batch, more accumulation, the same effective batch ([`BatchSplit::rungs`]). How a rung is
//! put on a command line, into the environment or a configuration file is a [`Template`], of a known trainer or the user's
//! own; [`CommandLadder`] joins them. A [`Chronicle`] says what happened, and a
//! [`Notebook`] remembers which batch worked.
//!
//! **What it leaves out.** It prints nothing, parses no arguments and chooses no exit code: what is worth saying goes to
//! a closure as [`Notice`], and whoever called writes the chronicle down. It knows no LibTorch and nothing of what the
//! command computes.
//!
//! **Where to start reading.** `keeper/starts.rs` is the loop. What it decides is pure: `keeper/judgement.rs` (was it
//! memory?), `keeper/sequel.rs` (what next?), all of `command` (but for its look for a checkpoint), `output/epilogue.rs`,
//! and the values of `chronicle.rs` and `notice.rs`. What touches the system is in `process`, `evidence`, `output/relay.rs`,
//! `checkpoint.rs`, `contents.rs`, `start_folders.rs`, `strays.rs`, `wholeness.rs` and `script_copy.rs` of `command`, `inside/door.rs`,
//! `folder.rs`, `copy.rs`, `origins.rs`, `refuge.rs`, `safety.rs` and `trainer_state.rs` of `keeper`, `notebook.rs`, and `journal.rs`,
//! which writes the events that `lowtide watch` reads.

mod batch;
mod chronicle;
mod command;
mod error;
mod evidence;
mod inside;
mod journal;
mod keeper;
mod notebook;
mod notice;
mod output;
mod process;

pub use batch::{BatchPart, BatchSplit, EffectiveBatch};
pub use chronicle::{
    CardPeak, Chronicle, Conclusion, End, EndKind, Evidence, InsideState, Peak, SCHEMA, StartRecord, batch_changed,
};
pub use command::checkpoint::Checkpoint;
pub use command::gap::{Library, NoAccumulation, RungGap};
pub use command::ladder::CommandLadder;
pub use command::request::{CommandRequest, ConfigCopy, Launch, ResumeRequest};
pub use command::resume::{ResumeRule, Resumption};
pub use command::script_copy::StandIn;
pub use command::shell::InShell;
pub use command::template::Template;
pub use error::KeepError;
pub use inside::host_reserve::USES;
pub use inside::memory_watch::{MemoryWatch, REPORTS};
pub use inside::request::{Inside, is_python_command};
pub use inside::trainer_guard::TrainerGuard;
pub use keeper::folder::{SUMMARY, is_free, new_folder};
pub use keeper::refuge::{KeptCheckpoint, Refuge};
pub use keeper::safety::Copies;
pub use keeper::starts::{KeepOptions, keep};
pub use lowtide_log::Activity;
pub use notebook::{Note, NoteKey, Notebook, lesson};
pub use notice::Notice;
pub use process::attendant::Grace;
pub use process::input::InputState;
pub use process::signal_mask::{ignored_signals, survive_file_size_limit};
