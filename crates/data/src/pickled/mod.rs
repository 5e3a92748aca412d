//! Pickles as trees: which names they may use, and what their objects are.

mod allow;
mod build;
mod numpy;
mod torch;

pub(crate) use allow::{allow, limits};
pub(crate) use build::{Builder, Far};
pub(crate) use numpy::NumpyType;
pub(crate) use torch::storage_id;
