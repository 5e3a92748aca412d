//! What to do, in the order of what it gains against what it costs.

mod case;
mod course;
mod framework;
mod levers;
mod list;
mod serving;

pub(crate) use case::Case;
pub(crate) use course::advise;
