//! What a user brings: a model and its data, as the loop sees them.

mod cache_summary;
mod catalogue;
mod definition;
mod tiling;

pub use cache_summary::{CachePoint, CacheReads, CacheSummary};
pub use catalogue::{Bundle, Catalogue, Recipe, Series, SeriesRun};
pub use definition::{Batch, EvaluationScope, Metric, Mode, PartOf, Tally, Workload};
pub use tiling::Tiling;
