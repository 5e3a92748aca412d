//! Random numbers for data: repeatable from a seed and a number, and apart from the engine's generators.

/// SplitMix64, started from a seed and a stream.
pub struct Random(u64);

impl Random {
    /// The stream `stream` of `seed`. Streams of one seed have nothing to do with each other.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        random.bits();
        random.0 = random.0.wrapping_add(random.bits().wrapping_mul(stream | 1));
        random
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `bound`, which is less than 2^53.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.unit() * bound as f64) as u64
    }
}

/// Normal numbers, by Box and Muller's method: two at a time.
pub struct Normal {
    random: Random,
    spare: Option<f64>,
}

impl Normal {
    /// As [`Random::new`].
    pub fn new(seed: u64, stream: u64) -> Normal {
        Normal { random: Random::new(seed, stream), spare: None }
    }

    /// The next number, with mean 0 and deviation 1.
    pub fn draw(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let length = (-2.0 * (1.0 - self.random.unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.random.unit();
        self.spare = Some(length * angle.sin());
        length * angle.cos()
    }
}
