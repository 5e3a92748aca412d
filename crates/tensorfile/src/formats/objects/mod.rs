//! Pickles as trees: which names they may use, and what their objects are.

mod builder;
mod names;
mod numpy;
mod torch;

pub(crate) use builder::{Builder, PickleOrigin};
pub(crate) use names::{allow, limits};
pub(crate) use numpy::NumpyType;
pub(crate) use torch::storage_id;
