//! Runs as a page and as charts.

mod chart;
mod drawing;
pub(crate) mod page;
pub(crate) mod page_data;
mod png;
mod rail;
mod svg;

pub use chart::chart;
pub use drawing::{Anchor, Drawing, Paint, Pen, Place, Shape};
pub use page::{COLOURS, report};
