//! Readers of the formats, and what tells these apart.

mod contents;
mod npy;
mod objects;
mod pickle;
mod pt;
mod safetensors;
mod zip;

pub use contents::{Contents, Format, open, open_within};
pub use safetensors::safetensors_header;
