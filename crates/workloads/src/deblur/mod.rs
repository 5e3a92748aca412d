//! Video restoration from blurred frames and spike streams, in the spirit of VRT.
//!
//! Start reading at `model.rs` (the network and how far its outputs see), `scene.rs` (films that are made up) and
//! `film.rs` (films in files).

mod clip;
mod film;
mod film_error;
mod film_files;
mod films;
mod footage;
mod lpips;
mod metrics;
mod model;
mod png_chunks;
mod png_file;
mod scene;
mod settings;
mod texture;
mod workload;

pub use clip::{Clip, Region};
pub use film_files::{FilmFiles, FilmLayout};
pub use lpips::{Lpips, LpipsError};
pub use metrics::{psnr, ssim};
pub use scene::Scenes;
pub use settings::{DataSettings, ModelSettings, Source};
pub use workload::Deblur;
