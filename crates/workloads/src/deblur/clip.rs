//! A short film: what the camera saw, what the spike camera saw, and what was there.

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
    pub(crate) fn place_of(&self, pixel: usize) -> [f32; 2] {
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
