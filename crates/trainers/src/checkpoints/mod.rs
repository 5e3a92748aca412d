//! Where trainers write their checkpoints, and how a start resumes from one.

mod knowledge;
mod lightning;
mod named;

pub use knowledge::{Beginning, CheckpointPlace, Checkpoints, ResumeGap, ResumeWords, checkpoints};
pub use named::{ENDINGS, NamedCheckpoints, named_checkpoints};
