//! One step: the model on its device, what a step changes, and how it is undone.

mod learning_rate;
mod model;
mod precision;
mod state;

pub(crate) use learning_rate::learning_rate;
pub(crate) use model::{Model, Pass, RECOMPUTE_LEVELS};
pub(crate) use precision::name as precision_name;
pub(crate) use state::{PhaseError, State, StepFigures, StepSpec};
