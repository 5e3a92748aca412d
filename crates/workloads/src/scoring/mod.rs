//! Scores of traces: three models that learn to predict one number from a sequence and a graph.
//!
//! `lstm` sees the sequence alone, `gnn_det` adds a graph network, `gvae` a variational graph encoder. Start reading at
//! `model.rs`; `item.rs` is what data has to be like.

mod batch;
mod decode;
mod drawn;
mod generated;
mod item;
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
mod write;

pub use generated::{Generated, STEPS};
pub use item::{Item, Items};
pub(crate) use series::series;
pub use settings::{Damage, DataSettings, GvaeSettings, Load, ModelName, ModelSettings, ShuffleName, Source, Window};
pub(crate) use workload::Prepared;
pub use workload::Scoring;
pub use write::{ItemFiles, ItemFormat, PickledItems};
