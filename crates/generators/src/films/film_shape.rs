//! What films are like.

/// How large and how long films are, and how fast things move in them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilmShape {
    /// Rows of a frame.
    pub height: u32,
    /// Columns of a frame.
    pub width: u32,
    /// Frames of a clip, or of a film.
    pub frames: u32,
    /// Moments in the exposure of a frame, at least 1.
    pub moments: u32,
    /// The most pixels that something moves in the exposure of a frame.
    pub speed: f32,
}
