//! Video restoration from blurred frames and spike streams, in the spirit of VRT.
//!
//! Start reading at `model.rs` (the network and how far its outputs see) and `scene.rs` (what a clip is).

mod clip;
mod layers;
mod metrics;
mod model;
mod scene;
mod settings;
mod texture;
mod workload;

pub use clip::{Clip, Region};
pub use metrics::{psnr, ssim};
pub use scene::Scenes;
pub use settings::{DataSettings, ModelSettings};
pub use workload::Deblur;
