//! The events of a run as they happen.

mod event_thinner;
mod journal;
mod line_file;

pub(crate) use journal::Journal;
pub(crate) use line_file::LineFile;
