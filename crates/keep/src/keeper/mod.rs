//! Starts a command again as long as there is a reason to.

pub(crate) mod decision;
pub(crate) mod ending;
pub(crate) mod keep;
