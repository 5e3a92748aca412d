//! The models and data that come with Lowtide: one folder each, and the [`CATALOGUE`] to get one by name.
//!
//! A workload holds its settings beside what they set, and implements [`lowtide_train::Workload`]; the loop in
//! `lowtide-train` does the rest. Start reading at `gpt/model.rs` or `qca/operator.rs`.

mod ahead;
mod catalogue;
pub mod deblur;
pub mod gpt;
mod layers;
pub mod qca;
pub mod scoring;
mod text_source;

pub use catalogue::CATALOGUE;
pub use text_source::TextSource;
