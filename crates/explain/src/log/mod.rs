//! What the log says of each event, and of the run as a whole.

mod activity;
mod circumstances;
mod event;
mod printout;
mod remark;
mod stack;

pub use activity::Activity;
pub(crate) use circumstances::Circumstances;
pub(crate) use event::Event;
pub(crate) use printout::Printout;
pub use remark::Remark;
pub(crate) use stack::{makes_a_layer, recomputes};
