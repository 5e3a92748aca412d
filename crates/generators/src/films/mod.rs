//! Films of any resolution, as a camera and a spike camera see them.
//!
//! Start reading at `scene.rs`.

mod clip;
mod film_files;
mod film_shape;
mod scene;
mod texture;

pub use clip::{Clip, Exposure, Region, brightness, first_charges};
pub use film_files::{BLUR, FilmFiles, FilmLayout, SHARP};
pub use film_shape::FilmShape;
pub use scene::Scenes;
