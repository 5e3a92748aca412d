//! Made-up films of any resolution: two textures that move, one before the other.
//!
//! Every pixel is a pure function of (seed, number, place, time), so a crop is computed alone and is the same as that part
//! of the whole frame.

use std::num::NonZeroUsize;
use std::thread;

use super::clip::{Clip, Exposure, Region, first_charges};
use super::film_shape::FilmShape;
use super::texture::Texture;
use crate::random::Random;

const LEAVES_BEHIND: u32 = 90;
const LEAVES_BEFORE: u32 = 14;
const GREY: f32 = 0.5;
/// Regions below this many pixels are not worth a second thread.
const WORTH_A_THREAD: usize = 1 << 16;

/// Clips of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Scenes {
    seed: u64,
    frames: usize,
    moments: usize,
    speed: f32,
}

/// What moves in one clip.
struct Scene {
    behind: Texture,
    before: Texture,
    /// Pixels in the exposure of a frame, across and down.
    velocity_behind: [f32; 2],
    velocity_before: [f32; 2],
    /// Where charges begin.
    charges: u64,
}

impl Scenes {
    /// The clips of a seed.
    #[must_use]
    pub fn new(shape: &FilmShape, seed: u64) -> Scenes {
        let (frames, moments) = (shape.frames as usize, shape.moments as usize);
        Scenes { seed, frames, moments, speed: shape.speed }
    }

    /// A region of clip `number`, made by at most so many threads; their number changes nothing.
    #[must_use]
    pub fn clip(&self, number: u64, region: Region, threads: NonZeroUsize) -> Clip {
        let scene = self.scene(number);
        let bands = bands(region, threads.get().min(region.pixels() / WORTH_A_THREAD).max(1));
        if let [region] = bands[..] {
            return self.band(&scene, region);
        }
        let parts: Vec<Clip> = thread::scope(|scope| {
            let started: Vec<_> = bands.iter().map(|band| scope.spawn(|| self.band(&scene, *band))).collect();
            started.into_iter().map(|thread| thread.join().expect("arithmetic does not panic")).collect()
        });
        Clip {
            blurred: join(&parts, self.frames * 3, |clip| &clip.blurred),
            spikes: join(&parts, self.frames * self.moments, |clip| &clip.spikes),
            sharp: join(&parts, self.frames * 3, |clip| &clip.sharp),
        }
    }

    /// What is there at a moment, counted through all exposures, in a region of clip `number`: planes of colours.
    pub(crate) fn still(&self, number: u64, moment: usize, region: Region) -> Vec<f32> {
        let scene = self.scene(number);
        let time = self.time_of(moment);
        let pixels = region.pixels();
        let mut planes = vec![0.0; 3 * pixels];
        for pixel in 0..pixels {
            let [x, y] = region.place_of(pixel);
            for (part, value) in scene.colour(x, y, time).into_iter().enumerate() {
                planes[part * pixels + pixel] = value;
            }
        }
        planes
    }

    /// Exposures since the beginning, in the middle of a moment.
    fn time_of(&self, moment: usize) -> f32 {
        (moment as f32 + 0.5) * (1.0 / self.moments as f32)
    }

    fn scene(&self, number: u64) -> Scene {
        let mut random = Random::new(self.seed, number);
        let velocity = |random: &mut Random| {
            let (speed, angle) = (random.unit() as f32 * self.speed, random.unit() as f32 * std::f32::consts::TAU);
            [speed * angle.cos(), speed * angle.sin()]
        };
        Scene {
            behind: Texture::new(&mut random, LEAVES_BEHIND, [GREY, GREY, GREY, 1.0]),
            before: Texture::new(&mut random, LEAVES_BEFORE, [0.0; 4]),
            velocity_behind: velocity(&mut random),
            velocity_before: velocity(&mut random),
            charges: random.bits(),
        }
    }

    fn band(&self, scene: &Scene, region: Region) -> Clip {
        let mut exposure = Exposure::new(self.frames, self.moments, first_charges(scene.charges, region));
        for layer in 0..self.frames * self.moments {
            let time = self.time_of(layer);
            for pixel in 0..region.pixels() {
                let [x, y] = region.place_of(pixel);
                exposure.see(layer, pixel, scene.colour(x, y, time));
            }
        }
        exposure.into_clip()
    }
}

impl Scene {
    fn colour(&self, x: f32, y: f32, time: f32) -> [f32; 3] {
        let moved = |velocity: [f32; 2]| (x - velocity[0] * time, y - velocity[1] * time);
        let (before_x, before_y) = moved(self.velocity_before);
        let [red, green, blue, cover] = self.before.at(before_x, before_y);
        let before = [red, green, blue];
        if cover >= 1.0 {
            return before;
        }
        let (behind_x, behind_y) = moved(self.velocity_behind);
        let behind = self.behind.at(behind_x, behind_y);
        // Where nothing is before, its colour is 0: it counts by its cover already.
        std::array::from_fn(|part| before[part] + behind[part] * (1.0 - cover))
    }
}

/// The region cut into about `count` bands of rows.
fn bands(region: Region, count: usize) -> Vec<Region> {
    let rows = region.height.div_ceil(u32::try_from(count).expect("threads are few"));
    (0..region.height)
        .step_by(rows as usize)
        .map(|row| Region { top: region.top + row, height: rows.min(region.height - row), ..region })
        .collect()
}

/// Planes of bands put together: all bands of the first plane, then those of the second, and so on.
fn join<T: Copy>(parts: &[Clip], planes: usize, of: impl Fn(&Clip) -> &Vec<T>) -> Vec<T> {
    let mut whole = Vec::with_capacity(parts.iter().map(|part| of(part).len()).sum());
    for plane in 0..planes {
        for part in parts {
            let values = of(part);
            let size = values.len() / planes;
            whole.extend_from_slice(&values[plane * size..(plane + 1) * size]);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::films::brightness;

    const SMALL: FilmShape = FilmShape { height: 24, width: 40, frames: 2, moments: 8, speed: 6.0 };
    const THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();
    const WHOLE: Region = Region { top: 0, left: 0, height: 24, width: 40 };

    fn clip(seed: u64, number: u64, region: Region) -> Clip {
        Scenes::new(&SMALL, seed).clip(number, region, THREADS)
    }

    #[test]
    fn clips_are_pure_and_different() {
        assert_eq!(clip(7, 3, WHOLE), clip(7, 3, WHOLE));
        assert_ne!(clip(7, 3, WHOLE), clip(7, 4, WHOLE));
        assert_ne!(clip(7, 3, WHOLE), clip(8, 3, WHOLE));
    }

    /// Rows and columns of `region` in planes of the whole frame.
    fn cut<T: Copy>(values: &[T], region: Region) -> Vec<T> {
        let (height, width) = (WHOLE.height as usize, WHOLE.width as usize);
        let mut part = Vec::new();
        for plane in values.chunks(height * width) {
            for row in plane.chunks(width).skip(region.top as usize).take(region.height as usize) {
                part.extend_from_slice(&row[region.left as usize..][..region.width as usize]);
            }
        }
        part
    }

    #[test]
    fn a_crop_is_a_part_of_the_frame() {
        let region = Region { top: 5, left: 9, height: 16, width: 16 };
        let (whole, crop) = (clip(1, 0, WHOLE), clip(1, 0, region));
        assert_eq!(crop.blurred, cut(&whole.blurred, region));
        assert_eq!(crop.spikes, cut(&whole.spikes, region));
        assert_eq!(crop.sharp, cut(&whole.sharp, region));
    }

    #[test]
    fn bands_of_many_threads_make_the_same_clip() {
        let scenes = Scenes::new(&SMALL, 1);
        let large = Region { top: 0, left: 0, height: 300, width: 500 };
        let part = Region { top: 290, left: 0, height: 10, width: 500 };
        let (whole, end) = (scenes.clip(0, large, THREADS), scenes.clip(0, part, NonZeroUsize::MIN));
        let pixels = large.pixels();
        assert_eq!(whole.sharp[pixels - part.pixels()..pixels], end.sharp[..part.pixels()]);
        assert_eq!(bands(large, 7).iter().map(|band| band.height).sum::<u32>(), 300);
    }

    #[test]
    fn spikes_count_brightness() {
        let Clip { blurred, spikes, .. } = clip(3, 1, WHOLE);
        let pixels = WHOLE.pixels();
        for pixel in 0..pixels {
            let at = |frame: usize, part: usize| blurred[(frame * 3 + part) * pixels + pixel];
            let light: f32 = (0..2).map(|frame| 8.0 * brightness([at(frame, 0), at(frame, 1), at(frame, 2)])).sum();
            let fired: u32 = spikes.iter().skip(pixel).step_by(pixels).map(|spike| u32::from(*spike)).sum();
            assert!((light - fired as f32).abs() <= 1.001, "{fired} spikes of {light}");
        }
    }

    #[test]
    fn what_stands_still_is_sharp() {
        let still = FilmShape { speed: 0.0, ..SMALL };
        let Clip { blurred, sharp, .. } = Scenes::new(&still, 1).clip(0, WHOLE, THREADS);
        assert!(blurred.iter().zip(&sharp).all(|(blurred, sharp)| (blurred - sharp).abs() < 1e-5));
        let Clip { blurred, sharp, .. } = clip(1, 0, WHOLE);
        assert!(blurred.iter().zip(&sharp).any(|(blurred, sharp)| (blurred - sharp).abs() > 0.1));
    }
}
