//! From settings and a workload to a trained run, or to the figures of a checkpoint.

mod checkpoint_evaluation;
mod choices;
mod ending;
mod saving;
mod sizing;
mod start;
mod trainer;

pub use checkpoint_evaluation::{EvalEnding, EvalJob, Evaluation, evaluate_checkpoint};
pub use ending::Outcome;
pub use trainer::{TrainJob, Trainer};
