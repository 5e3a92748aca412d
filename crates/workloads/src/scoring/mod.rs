//! Scores of traces: three models that learn to predict one number from a sequence and a graph.
//!
//! `lstm` sees the sequence alone, `gnn_det` adds a graph network, `gvae` a variational graph encoder. Start reading at
//! `model.rs`; `item.rs` is what data has to be like.

mod batch;
mod decode;
mod item;
mod item_shards;
mod layers;
mod metrics;
mod model;
mod room;
mod series;
mod set;
mod settings;
mod stream;
mod supply;
mod workload;

pub use item::Items;
pub use lowtide_generators::traces::{Item, SyntheticItems};
pub(crate) use series::series;
pub use settings::{DataSettings, GvaeSettings, Load, ModelName, ModelSettings, ShuffleName, Source, Window};
pub use workload::Scoring;
