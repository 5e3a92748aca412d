//! What a file holds, as a tree of values and as a table of tensors.

mod rows;
mod value;

pub use rows::{Row, Sums, rows};
pub use value::{Fields, Sparse, Tree};
