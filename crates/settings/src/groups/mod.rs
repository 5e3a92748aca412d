//! The groups of settings, each with its defaults and rules.

pub(crate) mod eval;
pub(crate) mod memory;
pub(crate) mod optimizer;
pub(crate) mod ranks;
pub(crate) mod run;
pub(crate) mod save;
pub(crate) mod train;
pub(crate) mod violation;
pub(crate) mod watch;
