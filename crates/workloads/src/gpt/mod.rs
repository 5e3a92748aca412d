//! GPT-2 and the text it is trained on.

mod model;
mod settings;
mod text;
mod token_file;
mod workload;

pub use model::Model;
pub use settings::{DataSettings, ModelSettings};
pub use workload::Gpt;
