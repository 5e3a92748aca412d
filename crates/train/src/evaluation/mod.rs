//! Evaluation: the loss and the workload's own figures on other samples, without touching what training holds.

mod eval_pass;
mod evaluator;
mod figures;
mod tiles;

pub(crate) use evaluator::{EvalOutcome, Evaluator};
pub use figures::{EvalMode, EvalSummary};
pub(crate) use figures::{LastEvaluation, Trend};
