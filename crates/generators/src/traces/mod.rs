//! Traces: items with a sequence, a graph and a score that depends on both.
//!
//! Start reading at `synthetic_items.rs`.

mod item;
mod item_files;
mod synthetic_items;

pub use item::Item;
pub use item_files::{ItemFiles, ItemFormat, PickledItems};
pub use synthetic_items::{STEPS, SyntheticItems};
