//! Which points of a series are written, so that it stays within its bytes.
//!
//! An event file has a bound, and each curve a part of it. A quarter of a curve's bytes is written in full, a quarter
//! of the rest with every second point, and so on; the largest (memory) or the last (loss) of each span is kept. A
//! curve with few points, as of evaluations, is never thinned by one with many.

/// What is kept of a span of points when not all of them are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// The largest: for memory, of which the peaks count.
    Largest,
    /// The last: for what is a state, as the loss or a rate.
    Last,
}

/// One point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) time: f64,
    pub(crate) step: u64,
    pub(crate) value: f32,
}

/// Decides which points of one series are written.
///
/// Every point is written until a quarter of the series' bytes is used, then one of two until a quarter of the rest is,
/// then one of four, and so on. So bytes never run out while the number of points they stand for grows by half with
/// each level.
#[derive(Debug, Clone)]
pub(crate) struct Thinning {
    /// What may still be written.
    left: u64,
    /// Where the next level begins.
    level_ends_at: u64,
    /// One point is written for so many.
    stride: u64,
    /// Points of the present span so far, and the one to write.
    seen: u64,
    kept: Option<Point>,
}

impl Thinning {
    pub(crate) const fn new(bytes: u64) -> Self {
        Self { left: bytes, level_ends_at: bytes - bytes / 4, stride: 1, seen: 0, kept: None }
    }

    /// Takes a point and gives the one that is to be written, if a span is full.
    pub(crate) fn take(&mut self, point: Point, keep: Retention) -> Option<Point> {
        self.seen += 1;
        self.kept = Some(self.kept.map_or(point, |kept| chosen(kept, point, keep)));
        if self.seen < self.stride {
            return None;
        }
        self.rest()
    }

    /// What is kept of a span that is not full.
    pub(crate) const fn rest(&mut self) -> Option<Point> {
        self.seen = 0;
        self.kept.take()
    }

    /// Counts what was written; `false` where there is no room, and nothing may be written.
    pub(crate) const fn spend(&mut self, bytes: u64) -> bool {
        if bytes > self.left {
            return false;
        }
        self.left -= bytes;
        if self.left <= self.level_ends_at {
            self.level_ends_at = self.left - self.left / 4;
            self.stride = self.stride.saturating_mul(2);
        }
        true
    }
}

/// A value that is not finite is kept: it tells more than any other.
fn chosen(kept: Point, point: Point, keep: Retention) -> Point {
    if !kept.value.is_finite() {
        return kept;
    }
    match keep {
        Retention::Largest if point.value < kept.value => kept,
        Retention::Largest | Retention::Last => point,
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, Retention, Thinning};

    fn point(value: f32) -> Point {
        Point { time: 0.0, step: 0, value }
    }

    fn written(bytes: u64, values: impl Iterator<Item = f32>, keep: Retention) -> Vec<f32> {
        let mut thinning = Thinning::new(bytes);
        let mut write = |value| {
            let point = thinning.take(point(value), keep)?;
            thinning.spend(100).then_some(point.value)
        };
        values.filter_map(&mut write).collect()
    }

    #[test]
    fn levels_are_a_quarter_of_the_rest() {
        let values = written(1600, (1_u8..30).map(f32::from), Retention::Last);
        // 16 points fit: four as they come, then three of two each, then three of four each.
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 14.0, 18.0, 22.0]);
    }

    #[test]
    fn the_largest_of_a_span_is_kept() {
        let mut thinning = Thinning::new(400);
        assert!(thinning.take(point(1.0), Retention::Largest).is_some() && thinning.spend(100));
        assert_eq!(thinning.take(point(9.0), Retention::Largest), None);
        assert_eq!(thinning.take(point(2.0), Retention::Largest), Some(point(9.0)));
        assert_eq!(thinning.take(point(5.0), Retention::Last), None);
        assert_eq!(thinning.rest(), Some(point(5.0)));
        assert_eq!(thinning.rest(), None);
    }

    #[test]
    fn what_is_not_finite_is_kept() {
        let mut thinning = Thinning::new(400);
        assert!(thinning.take(point(1.0), Retention::Last).is_some() && thinning.spend(100));
        assert_eq!(thinning.take(point(f32::INFINITY), Retention::Last), None);
        assert_eq!(thinning.take(point(2.0), Retention::Last), Some(point(f32::INFINITY)));
    }

    #[test]
    fn points_without_end_never_exceed_the_bytes() {
        let count = written(100_000, std::iter::repeat_n(1.0, 3_000_000), Retention::Largest).len();
        assert!((500..=1000).contains(&count), "{count} of at most 1000");
    }
}
