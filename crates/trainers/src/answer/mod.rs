//! The one answer that configurations give to the question for a number.

mod reading;
#[cfg(test)]
mod tests;

pub(crate) use reading::place;
pub use reading::{Answer, Question, answer, candidates};
