//! A short film: what the camera saw, what the spike camera saw, and what was there; and how blur and spikes are made of
//! what is there at each moment.
//!
//! A blurred frame is the mean over the moments of its exposure, the sharp one is the moment in its middle. A pixel of the
//! spike camera adds up brightness and fires when it has enough (integrate and fire); it begins with a random charge and
//! goes on through the clip.

use crate::random::Random;

/// A part of every frame of a clip, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first row.
    pub top: u32,
    /// The first column.
    pub left: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl Region {
    /// Pixels in it.
    #[must_use]
    pub fn pixels(&self) -> usize {
        self.height as usize * self.width as usize
    }

    /// Column and row in the frame of a pixel, counted row by row.
    pub(super) fn place_of(&self, pixel: usize) -> [f32; 2] {
        let width = self.width as usize;
        [self.left as usize + pixel % width, self.top as usize + pixel / width].map(|place| place as f32)
    }

    /// The middle of a frame, `side` pixels along each side.
    #[must_use]
    pub fn middle(height: u32, width: u32, side: u32) -> Region {
        Region { top: (height - side) / 2, left: (width - side) / 2, height: side, width: side }
    }
}

/// The same region of all frames. Values are planes of rows, and brightness is from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// Blurred frames: red, green and blue planes of each.
    pub blurred: Vec<f32>,
    /// Spikes, 0 or 1: for each frame a plane a moment.
    pub spikes: Vec<u8>,
    /// Sharp frames: red, green and blue planes of each, in the middle of the exposure.
    pub sharp: Vec<f32>,
}

/// A clip in the making. Layers are moments, counted through all frames.
pub struct Exposure {
    moments: usize,
    share: f32,
    charges: Vec<f32>,
    clip: Clip,
}

impl Exposure {
    /// Nothing seen yet; there is a charge for each pixel.
    #[must_use]
    pub fn new(frames: usize, moments: usize, charges: Vec<f32>) -> Exposure {
        let pixels = charges.len();
        let clip = Clip {
            blurred: vec![0.0; frames * 3 * pixels],
            spikes: vec![0; frames * moments * pixels],
            sharp: vec![0.0; frames * 3 * pixels],
        };
        Exposure { moments, share: 1.0 / moments as f32, charges, clip }
    }

    /// Takes in the colour of a pixel at a moment.
    pub fn see(&mut self, layer: usize, pixel: usize, colour: [f32; 3]) {
        let (frame, moment) = (layer / self.moments, layer % self.moments);
        for (part, value) in colour.into_iter().enumerate() {
            let at = self.at(frame, part, pixel);
            self.clip.blurred[at] += value * self.share;
            if moment == self.moments / 2 {
                self.clip.sharp[at] = value;
            }
        }
        self.charge(layer, pixel, brightness(colour));
    }

    /// Takes in a blurred frame and the sharp one, planes of colours of all pixels.
    pub fn pair(&mut self, frame: usize, blurred: &[f32], sharp: &[f32]) {
        let planes = self.at(frame, 0, 0)..self.at(frame + 1, 0, 0);
        self.clip.blurred[planes.clone()].copy_from_slice(blurred);
        self.clip.sharp[planes].copy_from_slice(sharp);
    }

    /// Charges a pixel of the spike camera.
    pub fn charge(&mut self, layer: usize, pixel: usize, brightness: f32) {
        let charge = &mut self.charges[pixel];
        *charge += brightness;
        if *charge >= 1.0 {
            *charge -= 1.0;
            self.clip.spikes[layer * self.charges.len() + pixel] = 1;
        }
    }

    /// What was seen.
    #[must_use]
    pub fn into_clip(self) -> Clip {
        self.clip
    }

    fn at(&self, frame: usize, part: usize, pixel: usize) -> usize {
        (frame * 3 + part) * self.charges.len() + pixel
    }
}

/// Where charges begin: a pure function of the place in the frame.
#[must_use]
pub fn first_charges(seed: u64, region: Region) -> Vec<f32> {
    let rows = region.top..region.top + region.height;
    rows.flat_map(|y| {
        (region.left..region.left + region.width)
            .map(move |x| Random::new(seed, u64::from(y) << 32 | u64::from(x)).unit() as f32)
    })
    .collect()
}

/// Brightness as the eye weighs colours, so that white fires at every moment.
#[must_use]
pub fn brightness([red, green, blue]: [f32; 3]) -> f32 {
    0.299 * red + 0.587 * green + 0.114 * blue
}
