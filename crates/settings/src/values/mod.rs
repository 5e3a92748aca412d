//! Settings that are one of a few words.

pub(crate) mod choice;
pub(crate) mod clean;
pub(crate) mod frames;
pub(crate) mod micro_batch;
pub(crate) mod precision;
pub(crate) mod recompute;
pub(crate) mod spill;
