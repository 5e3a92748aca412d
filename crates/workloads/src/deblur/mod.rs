//! Video restoration from blurred frames and spike streams, in the spirit of VRT.
//!
//! Start reading at `model.rs` (the network and how far its outputs see) and `film.rs` (films in files);
//! films that are made up come from `lowtide_generators::films`.

mod clip_batch;
mod film;
mod film_error;
mod films;
mod footage;
mod lpips;
mod metrics;
mod model;
mod png_chunks;
mod png_file;
mod settings;
mod workload;

pub use lpips::{Lpips, LpipsError};
pub use metrics::{psnr, ssim};
pub use settings::{DataSettings, ModelSettings, Source};
pub use workload::Deblur;
