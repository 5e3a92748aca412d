//! Scores of traces: three models that learn to predict one number from a sequence and a graph.
//!
//! `lstm` sees the sequence alone, `gnn_det` adds a graph network, `gvae` a variational graph encoder. Start reading at
//! `model.rs`; `item.rs` is what data has to be like.

mod batch;
mod generated;
mod item;
mod layers;
mod metrics;
mod model;
mod series;
mod settings;
mod split;
mod workload;

pub use generated::Generated;
pub use item::{Item, Items};
pub(crate) use series::series;
pub use settings::{DataSettings, GvaeSettings, ModelName, ModelSettings, Source};
pub use workload::Scoring;
