//! What the log says of each event, and of the run as a whole.

mod activity;
mod event;
mod printout;
mod remark;

pub use activity::Activity;
pub(crate) use activity::{makes_a_layer, recomputes};
pub(crate) use event::{Circumstances, Event};
pub(crate) use printout::Printout;
pub use remark::Remark;
