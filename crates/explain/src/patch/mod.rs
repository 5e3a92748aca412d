//! Changes of a configuration's text, shown as unified diffs.

mod change;
mod diff;
mod edit;
mod micro_batch;

pub use change::{Edit, Patch, PatchError};
pub(crate) use edit::{add_after, export, single, switch};
pub(crate) use micro_batch::micro_batch;
