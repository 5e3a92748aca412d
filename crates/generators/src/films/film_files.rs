//! Made-up films as files: a folder for each scene, in the form that the workload `deblur` reads.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use lowtide_disk::DiskError;
use png::{BitDepth, ColorType, Encoder};

use super::clip::Region;
use super::film_shape::FilmShape;
use super::scene::Scenes;

/// The folder of a scene with its sharp frames.
pub const SHARP: &str = "sharp";
/// The folder of a scene with its blurred frames.
pub const BLUR: &str = "blur";

/// What a scene's folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilmLayout {
    /// A sharp frame for every moment.
    Sharp,
    /// For every exposure a blurred frame and a sharp one.
    Pairs,
}

/// Films to be written: as many frames as their shape says in each scene, or in each of its two folders.
pub struct FilmFiles {
    shape: FilmShape,
    layout: FilmLayout,
    scenes: Scenes,
}

impl FilmFiles {
    /// Films of a seed.
    #[must_use]
    pub fn new(shape: FilmShape, layout: FilmLayout, seed: u64) -> FilmFiles {
        let scenes = Scenes::new(&shape, seed);
        FilmFiles { shape, layout, scenes }
    }

    /// Writes scene `number` into a folder of `folder`; each file is there as a whole or not at all.
    ///
    /// # Errors
    ///
    /// What the system said, and of which file.
    pub fn write(&self, folder: &Path, number: u32) -> Result<(), DiskError> {
        let scene = folder.join(format!("scene_{number:03}"));
        let (sharp, blur) = (scene.join(SHARP), scene.join(BLUR));
        let folders = match self.layout {
            FilmLayout::Sharp => vec![&sharp],
            FilmLayout::Pairs => vec![&sharp, &blur],
        };
        for folder in folders {
            fs::create_dir_all(folder).map_err(|source| DiskError { path: folder.clone(), source })?;
        }
        for frame in 0..self.shape.frames {
            let name = format!("{frame:06}.png");
            match self.layout {
                FilmLayout::Sharp => self.put(&sharp.join(name), &self.moment(number, frame))?,
                FilmLayout::Pairs => {
                    let moments = frame * self.shape.moments..(frame + 1) * self.shape.moments;
                    self.put(&sharp.join(&name), &self.moment(number, moments.start + self.shape.moments / 2))?;
                    let share = 1.0 / self.shape.moments as f32;
                    let mut blurred = vec![0.0; 3 * self.region().pixels()];
                    for moment in moments {
                        let still = self.moment(number, moment);
                        blurred.iter_mut().zip(still).for_each(|(sum, value)| *sum += value * share);
                    }
                    self.put(&blur.join(&name), &blurred)?;
                }
            }
        }
        Ok(())
    }

    fn region(&self) -> Region {
        Region { top: 0, left: 0, height: self.shape.height, width: self.shape.width }
    }

    /// What is there at a moment, counted through all exposures.
    fn moment(&self, number: u32, moment: u32) -> Vec<f32> {
        self.scenes.still(number.into(), moment as usize, self.region())
    }

    fn put(&self, path: &Path, planes: &[f32]) -> Result<(), DiskError> {
        lowtide_disk::write_with(path, |file| write_png(file, self.region(), planes))
    }
}

/// Red, green and blue planes of values from 0 to 1, in 8 bits.
fn write_png(file: &mut impl Write, region: Region, planes: &[f32]) -> io::Result<()> {
    let pixels = region.pixels();
    let bytes: Vec<u8> =
        (0..3 * pixels).map(|at| (planes[at % 3 * pixels + at / 3] * 255.0).round().clamp(0.0, 255.0) as u8).collect();
    let mut encoder = Encoder::new(file, region.width, region.height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    Ok(writer.finish()?)
}
