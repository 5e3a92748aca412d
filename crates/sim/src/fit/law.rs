//! How a request grows with the size.

use super::sizes::Form;

/// Sizes that libraries ask for may be off a straight line by their own alignment.
const ALIGNMENT: u64 = 4096;

/// More than any request; sums of many stay far below 2^64.
const MOST_BYTES: f64 = (1_u64 << 44) as f64;
/// Up to this part that does not grow with the size, a request is taken to grow with the size nearly.
const NEARLY: f64 = 0.125;
/// How far off such requests are.
const TILES: f64 = 0.06;

/// How far apart the bytes of one unit of size may be where they hang on the data.
const SCATTER: f64 = 1.25;

/// Bytes as a function of the size: `constant + linear·size + quadratic·size²`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Polynomial {
    pub(super) constant: f64,
    pub(super) linear: f64,
    pub(super) quadratic: f64,
}

impl Polynomial {
    pub(super) const fn constant(bytes: u64) -> Self {
        Self { constant: bytes as f64, linear: 0.0, quadratic: 0.0 }
    }

    pub(super) fn proportional(size: u64, bytes: u64) -> Self {
        Self { constant: 0.0, linear: bytes as f64 / size as f64, quadratic: 0.0 }
    }

    fn quadratic(size: u64, bytes: u64) -> Self {
        Self { constant: 0.0, linear: 0.0, quadratic: bytes as f64 / (size as f64 * size as f64) }
    }

    /// The line through two points.
    fn line(one: (u64, u64), other: (u64, u64)) -> Self {
        let linear = (other.1 as f64 - one.1 as f64) / (other.0 as f64 - one.0 as f64);
        Self { constant: one.1 as f64 - linear * one.0 as f64, linear, quadratic: 0.0 }
    }

    /// The parabola through three points.
    fn parabola(points: [(u64, u64); 3]) -> Self {
        let [(x, p), (y, q), (z, r)] = points.map(|(size, bytes)| (size as f64, bytes as f64));
        let (first, second) = ((q - p) / (y - x), (r - q) / (z - y));
        let quadratic = (second - first) / (z - x);
        let linear = first - quadratic * (x + y);
        Self { constant: p - linear * x - quadratic * x * x, linear, quadratic }
    }

    /// Half-way to another.
    fn between(self, other: Self) -> Self {
        Self {
            constant: f64::midpoint(self.constant, other.constant),
            linear: f64::midpoint(self.linear, other.linear),
            quadratic: f64::midpoint(self.quadratic, other.quadratic),
        }
    }

    fn scaled(self, factor: f64) -> Self {
        let Self { constant, linear, quadratic } = self;
        Self { constant: constant * factor, linear: linear * factor, quadratic: quadratic * factor }
    }

    /// The bytes at a size, at least one.
    pub(super) fn at(&self, size: u64) -> u64 {
        let size = size as f64;
        (self.constant + self.linear * size + self.quadratic * size * size).round().clamp(1.0, MOST_BYTES) as u64
    }

    fn meets(&self, points: &[(u64, u64)]) -> bool {
        points.iter().all(|(size, bytes)| self.at(*size).abs_diff(*bytes) <= tolerance(*bytes))
    }
}

/// How far off a law a size may be.
fn tolerance(bytes: u64) -> u64 {
    (bytes / 1000).min(ALIGNMENT)
}

/// Whether two sizes of a request are those of one that stays, that grows with the size, or with its square.
pub(super) fn is_regular(one: (u64, u64), other: (u64, u64)) -> bool {
    regular(&[one, other]).is_some()
}

/// The law through all points that has one term only.
fn regular(points: &[(u64, u64)]) -> Option<Polynomial> {
    let (size, bytes) = *points.last()?;
    if points.iter().all(|(_, other)| *other == bytes) {
        return Some(Polynomial::constant(bytes));
    }
    [Polynomial::proportional(size, bytes), Polynomial::quadratic(size, bytes)]
        .into_iter()
        .find(|law| law.meets(points))
}

/// What is known of a request's law: its likely form, and the least and the greatest it may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate<T> {
    pub(super) likely: T,
    pub(super) low: T,
    pub(super) high: T,
}

impl<T: Copy> Estimate<T> {
    pub(super) const fn certain(law: T) -> Self {
        Self { likely: law, low: law, high: law }
    }
}

impl Estimate<Polynomial> {
    /// Whether it neither stays, nor grows in a straight line: another kernel was picked.
    pub(super) fn jumps(&self) -> bool {
        self.low != self.high && (self.likely == self.low || self.likely == self.high)
    }

    /// Where no other request jumps, half of the doubt.
    pub(super) fn narrowed(self) -> Self {
        Self { low: self.low.between(self.likely), high: self.high.between(self.likely), ..self }
    }

    /// The bytes at a size; `site` tells requests apart that are drawn each for itself.
    pub(super) fn at(&self, size: u64, form: Form, site: u64) -> u64 {
        let [low, likely, high] = [self.low, self.likely, self.high].map(|law| law.at(size));
        match form {
            Form::Likely => likely,
            Form::Low => low,
            Form::High => high,
            Form::Draw(number) => {
                let part = fraction(site, number) * 2.0;
                let (from, to, part) = if part < 1.0 { (low, likely, part) } else { (likely, high, part - 1.0) };
                (from as f64 + (to as f64 - from as f64) * part) as u64
            }
        }
    }
}

/// A number from 0 to 1 that looks like chance and is the same each time.
fn fraction(site: u64, number: u64) -> f64 {
    let mut mixed = site.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for _ in 0..2 {
        mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// What a request is for, as far as its life shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A library's own, for one call; its size is up to the kernel that the library picks.
    Workspace,
    Tensor,
}

/// The law through points of growing size, of which there is at least one.
pub(super) fn estimate(points: &[(u64, u64)], used_as: Use) -> Estimate<Polynomial> {
    let last = points[points.len() - 1];
    let [flat, straight] = [Polynomial::constant(last.1), Polynomial::proportional(last.0, last.1)];
    let [.., before, _] = points else {
        return Estimate { likely: straight, low: flat, high: straight };
    };
    let line = Polynomial::line(*before, last);
    let is_line = line.meets(points) && line.constant >= 0.0;
    if let Some(law) = regular(points) {
        // Beside the one term there may be a few bytes of alignment.
        return Estimate::certain(if is_line && law.linear > 0.0 { line } else { law });
    }
    if is_line && (used_as == Use::Tensor || points.len() > 2) {
        return Estimate::certain(line);
    }
    if let [.., first, _, _] = points
        && used_as == Use::Tensor
    {
        if line.meets(points) {
            return Estimate::certain(line);
        }
        if let Some(scattered) = scattered(points) {
            return scattered;
        }
        let parabola = Polynomial::parabola([*first, *before, last]);
        if parabola.quadratic >= 0.0 && parabola.linear >= 0.0 && parabola.meets(points) {
            return Estimate { likely: parabola, low: line, high: parabola };
        }
    }
    match used_as {
        Use::Workspace => workspace(*before, last),
        Use::Tensor => tensor(*before, last),
    }
}

/// What grows with the size and with what the data is: rows that are sent to an expert, boxes that are found, texts of many lengths.
fn scattered(points: &[(u64, u64)]) -> Option<Estimate<Polynomial>> {
    let slope = |bytes: f64, size: f64| Polynomial { constant: 0.0, linear: bytes / size, quadratic: 0.0 };
    let slopes = || points.iter().map(|(size, bytes)| slope(*bytes as f64, *size as f64));
    let low = slopes().min_by(|one, other| one.linear.total_cmp(&other.linear))?;
    let high = slopes().max_by(|one, other| one.linear.total_cmp(&other.linear))?;
    let sum = |of: fn(&(u64, u64)) -> u64| points.iter().map(|point| of(point) as f64).sum::<f64>();
    let likely = slope(sum(|(_, bytes)| *bytes), sum(|(size, _)| *size));
    (high.linear <= low.linear * SCATTER).then_some(Estimate { likely, low, high })
}

/// A workspace whose size has no law that the recordings show.
fn workspace(before: (u64, u64), last: (u64, u64)) -> Estimate<Polynomial> {
    let line = Polynomial::line(before, last);
    let [flat, straight] = [Polynomial::constant(last.1), Polynomial::proportional(last.0, last.1)];
    if (line.constant / last.1 as f64).abs() < NEARLY {
        // The kernel's own tiles: nearly with the size, and not to the byte.
        return Estimate { likely: line, low: line.scaled(1.0 - TILES), high: line.scaled(1.0 + TILES) };
    }
    if last.1 < before.1 {
        return Estimate { likely: flat, low: flat, high: straight };
    }
    let likely = if line.constant < 0.0 { straight } else { line };
    Estimate { likely, low: flat, high: straight }
}

/// A tensor that shrinks, or that grows faster than the size: with its square at most.
fn tensor(before: (u64, u64), last: (u64, u64)) -> Estimate<Polynomial> {
    let line = Polynomial::line(before, last);
    let [flat, straight] = [Polynomial::constant(last.1), Polynomial::proportional(last.0, last.1)];
    if last.1 < before.1 {
        return Estimate { likely: flat, low: flat, high: straight };
    }
    Estimate { likely: line, low: straight, high: Polynomial::quadratic(last.0, last.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(points: &[(u64, u64)], size: u64) -> [u64; 3] {
        let law = estimate(points, Use::Tensor);
        [law.low, law.likely, law.high].map(|law| law.at(size))
    }

    #[test]
    fn a_square_and_a_line_are_told_apart_by_three_sizes() {
        let parabola = |size: u64| 300 * size + 40 * size * size;
        let [.., likely, high] = at(&[2, 4, 8].map(|size| (size, parabola(size))), 32);
        assert_eq!((likely, high), (parabola(32), parabola(32)));
        assert_eq!(at(&[2, 4].map(|size| (size, 512 * size * size)), 32), [512 * 1024; 3]);
        // Without the first token of each text.
        assert_eq!(at(&[8, 16, 32].map(|size| (size, 768 * (size - 1))), 64)[1], 768 * 63);
    }

    /// Rows of one expert of eight: about a quarter of all, more or less.
    #[test]
    fn what_hangs_on_the_data_is_no_curve() {
        let [low, likely, high] = at(&[(2, 124 * 512), (4, 270 * 512), (8, 590 * 512)], 32);
        assert_eq!((low, high), (124 * 16 * 512, 590 * 4 * 512));
        assert!((2200..=2300).contains(&(likely / 512)), "{}", likely / 512);
    }
}
