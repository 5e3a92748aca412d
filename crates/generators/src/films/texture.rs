//! Textures that scenes are made of: striped leaves fallen over each other, on a torus.
//!
//! Leaves of all sizes with sharp edges have the statistics of photographs, as far as blur is concerned.

use crate::random::Random;

/// Pixels along each side; the texture repeats beyond.
const SIDE: usize = 256;
const RADII: (f64, f64) = (3.0, 60.0);

/// Red, green, blue and how much of it is there, from 0 to 1.
pub(crate) type Colour = [f32; 4];

/// A texture, row by row.
pub(crate) struct Texture(Vec<Colour>);

impl Texture {
    /// `leaves` leaves on `ground`.
    pub(crate) fn new(random: &mut Random, leaves: u32, ground: Colour) -> Texture {
        let mut texture = Texture(vec![ground; SIDE * SIDE]);
        for _ in 0..leaves {
            texture.drop_leaf(&Leaf::new(random));
        }
        texture
    }

    fn drop_leaf(&mut self, leaf: &Leaf) {
        let reach = leaf.radius.ceil() as i64;
        for y in -reach..=reach {
            for x in -reach..=reach {
                if ((x * x + y * y) as f64) < leaf.radius * leaf.radius {
                    self.0[index(leaf.x + x, leaf.y + y)] = leaf.colour_at(x as f64, y as f64);
                }
            }
        }
    }

    /// The colour between pixels, linear in both directions.
    pub(crate) fn at(&self, x: f32, y: f32) -> Colour {
        let (left, top) = (x.floor(), y.floor());
        let (right_share, bottom_share) = (x - left, y - top);
        let (left, top) = (left as i64, top as i64);
        let mix = |a: Colour, b: Colour, share: f32| std::array::from_fn(|part| a[part] + (b[part] - a[part]) * share);
        let row = |y| mix(self.0[index(left, y)], self.0[index(left + 1, y)], right_share);
        mix(row(top), row(top + 1), bottom_share)
    }
}

fn index(x: i64, y: i64) -> usize {
    // The side is a power of two, so wrapping around is a mask, for negative numbers too.
    let wrap = |at: i64| (at & (SIDE as i64 - 1)) as usize;
    wrap(y) * SIDE + wrap(x)
}

struct Leaf {
    x: i64,
    y: i64,
    radius: f64,
    colour: [f64; 3],
    /// Waves in a pixel, across and down.
    stripes: (f64, f64),
    /// How much stripes change the colour.
    depth: f64,
}

impl Leaf {
    fn new(random: &mut Random) -> Leaf {
        let (x, y) = (random.below(SIDE as u64) as i64, random.below(SIDE as u64) as i64);
        // As many leaves from r to 2 r as from 2 r to 4 r.
        let radius = RADII.0 * (RADII.1 / RADII.0).powf(random.unit());
        let colour = std::array::from_fn(|_| random.unit());
        let (waves, angle) = (0.02 + 0.18 * random.unit(), std::f64::consts::TAU * random.unit());
        Leaf { x, y, radius, colour, stripes: (waves * angle.cos(), waves * angle.sin()), depth: 0.3 * random.unit() }
    }

    fn colour_at(&self, x: f64, y: f64) -> Colour {
        let wave = (std::f64::consts::TAU * (self.stripes.0 * x + self.stripes.1 * y)).sin();
        let part = |at: usize| (self.colour[at] + self.depth * wave).clamp(0.0, 1.0) as f32;
        [part(0), part(1), part(2), 1.0]
    }
}
