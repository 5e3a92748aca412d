//! What happened, as values.

pub(crate) mod story;
pub(crate) mod told;
