//! What to do, best first: levers with the peak expected after them and their patches.

mod activations;
mod arrays;
mod batch;
mod boosting;
mod case;
mod course;
mod device;
mod evaluation;
mod forward;
mod framework;
mod host;
mod inference;
mod install;
mod jax;
mod letters;
mod list;
mod metal;
mod others;
mod parameters;
mod pictures;
mod reading;
mod reduction;
mod saving;
mod server;
mod serving;
mod share;
mod web;
mod workers;

pub(crate) use case::Case;
pub(crate) use course::{Counsel, advise};
