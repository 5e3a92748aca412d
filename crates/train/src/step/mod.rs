//! One step: the model on its device, what a step changes, and how it is undone.

mod companions;
mod graphs;
mod learning_rate;
mod model;
mod next_batch;
mod state;

pub(crate) use companions::{Asked, Companions, StepFailure};
pub(crate) use learning_rate::learning_rate;
pub(crate) use model::{Model, Pass, RECOMPUTE_LEVELS, precision_name};
pub(crate) use state::{State, StepFigures, StepSpec, UPDATE};
