//! A quantum cellular automaton: one learned operator, applied many times to a complex state on a torus.
//!
//! Start reading at `operator.rs` (one application) and `metrics.rs` (what a good automaton is).

mod episode;
mod metrics;
mod operator;
mod settings;
mod start_state;
mod workload;

pub use metrics::{Metrics, metrics};
pub use operator::Operator;
pub use settings::{DataSettings, ModelSettings, OperatorName};
pub use start_state::StartStates;
pub use workload::Qca;
