//! Training inside a memory line, for any model a user brings.
//!
//! A model and its data are a [`Workload`]; [`Run::prepare`] checks that it fits and opens the run folder, [`Run::train`]
//! trains it to the end. Start reading at `run.rs` (the loop) and `step.rs` (one step as a transaction).
//!
//! The loop knows no model and no command line, and prints nothing: every event goes to the run folder and to the
//! closure it was given.

// The example's model, which unit tests use too, knows this crate by its name.
#[cfg(test)]
extern crate self as lowtide_train;

mod apart;
mod best;
mod checkpoint;
mod cleaning;
mod error;
mod evaluate;
mod feeding;
mod finish;
mod inject;
mod learning_rate;
mod memory;
mod metrics;
mod monitor;
mod precision;
mod prepare;
mod profile;
mod progress;
mod requests;
mod run;
mod run_folder;
mod schedule;
mod series;
mod sizing;
mod step;
mod summary;
mod tally;
mod tensor_file;
mod thinned;
mod tiles;
mod trend;
mod workload;

pub use apart::{CheckpointChoice, EvalEnding, EvalPlan, Evaluation, RunToEvaluate, evaluate_checkpoint};
pub use error::{FolderProblem, Holder, Result, TrainError};
pub use feeding::{Feeding, FeedingPoint, Fetched};
pub use inject::{Injection, InjectionError};
pub use profile::Profile;
pub use requests::Requests;
pub use run::{Outcome, Plan, Run};
pub use run_folder::{FolderChoice, Start};
pub use schedule::{Schedule, ScheduleProblem};
pub use series::{RunResult, SeriesFolder};
pub use summary::{EvalMode, EvalSummary, Stopped, Summary};
pub use tally::{Metric, Tally};
pub use tiles::Tiling;
pub use workload::{Batch, Evaluating, Mode, Workload};
