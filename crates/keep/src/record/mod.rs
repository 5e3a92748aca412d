//! What happened, as values.

pub(crate) mod chronicle;
pub(crate) mod end;
pub(crate) mod notice;
