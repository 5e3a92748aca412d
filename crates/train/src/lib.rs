//! Training inside a memory line, for any model a user brings.
//!
//! A model and its data are a [`Workload`]; [`Trainer::prepare`] checks that it fits and opens the run folder,
//! [`Trainer::train`] trains it to the end, and [`evaluate_checkpoint`] evaluates what a run saved. Start reading at
//! `run/trainer.rs` (the loop), `step/state.rs` (one step as a transaction) and `evaluation/evaluator.rs`. What both share,
//! the guard under the line and the journal of events, is `memory/recovery.rs`.
//!
//! The loop knows no model and no command line, and prints nothing: every event goes to the run folder and to the
//! closure it was given.

// The example's model, which unit tests use too, knows this crate by its name.
#[cfg(test)]
extern crate self as lowtide_train;

mod error;
mod evaluation;
mod folder;
mod journal;
mod memory;
mod ranks;
mod requests;
mod run;
mod step;
mod time_profile;
mod workload;

pub use error::{Fallback, FolderProblem, Holder, Purpose, Result, ScheduleProblem, TrainError};
pub use evaluation::{EvalMode, EvalSummary};
pub use folder::{FolderChoice, RunCheckpoint, RunEnding, RunResult, Schedule, SeriesFolder, Start, Summary};
pub use memory::Profile;
// What a run is told is typed where no LibTorch is.
pub use lowtide_core::{CheckpointChoice, Injection, InjectionError};
pub use ranks::{Fault, Passage, Team};
pub use requests::Requests;
pub use run::{EvalEnding, EvalJob, Evaluation, Outcome, TrainJob, Trainer, evaluate_checkpoint};
pub use time_profile::{Part, TRACE, TimeKernel, TimePart, TimeProfile};
pub use workload::{
    Batch, Bundle, CachePoint, CacheReads, CacheSummary, Catalogue, EvaluationScope, Metric, Mode, PartOf, Recipe,
    Series, SeriesRun, Tally, Tiling, Workload,
};
