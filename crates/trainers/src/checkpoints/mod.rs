//! Where trainers write their checkpoints, and how a start resumes from one.

mod knowledge;
mod lightning;

pub use knowledge::{Beginning, CheckpointPlace, Checkpoints, ResumeGap, ResumeWords, checkpoints};
