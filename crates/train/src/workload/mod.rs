//! What a user brings: a model and its data, as the loop sees them.

mod batch;
mod cache_summary;
mod definition;
mod metric;
mod mode;
mod tiling;

pub use batch::Batch;
pub use cache_summary::{CachePoint, CacheReads, CacheSummary};
pub use definition::Workload;
pub use metric::{Metric, Tally};
pub use mode::{EvaluationScope, Mode};
pub use tiling::Tiling;
