//! Runs as a page and as charts.

pub(crate) mod page;
pub(crate) mod page_data;
mod png;
mod svg;

pub use page::{COLOURS, report};
pub use png::png;
pub use svg::chart;
