//! Memory and loss over time, in a bounded number of points.

use lowtide_core::Bytes;

/// The most points that are kept.
pub const POINTS: usize = 2048;

/// Some steps in a row as one point: memory is the most of them, the loss their mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Seconds since the run began, at the end of the last step.
    pub time: f64,
    /// The last step.
    pub step: u64,
    /// The steps in this point.
    pub steps: u64,
    /// Bytes in use after a step.
    pub allocated: Bytes,
    /// Bytes in use during a step.
    pub peak: Bytes,
    /// Bytes held from the device, cached blocks included.
    pub reserved: Bytes,
    /// The line, where one is drawn.
    pub line: Option<Bytes>,
    /// The mean loss of the steps whose loss is a finite number; NaN where there is none.
    pub loss: f64,
    /// The steps whose loss is a finite number.
    pub finite: u64,
    /// Samples computed at once in the last step.
    pub micro_batch: u32,
}

impl Point {
    /// This point and the one after it as one.
    fn and(self, next: Point) -> Point {
        let finite = self.finite + next.finite;
        let sum = |point: &Point| if point.finite == 0 { 0.0 } else { point.loss * point.finite as f64 };
        Point {
            steps: self.steps + next.steps,
            allocated: self.allocated.max(next.allocated),
            peak: self.peak.max(next.peak),
            reserved: self.reserved.max(next.reserved),
            loss: if finite == 0 { f64::NAN } else { (sum(&self) + sum(&next)) / finite as f64 },
            finite,
            ..next
        }
    }
}

/// The points of a run, thinned evenly as it gets longer.
#[derive(Debug, Default)]
pub struct Timeline {
    points: Vec<Point>,
    /// How often neighbours were made one; each point holds two to the power of this many steps.
    halvings: u32,
}

impl Timeline {
    /// Adds a step.
    pub fn push(&mut self, point: Point) {
        let full = 1u64 << self.halvings;
        match self.points.last_mut() {
            // A change of the line is kept where it happened.
            Some(last) if last.steps < full && last.line == point.line => *last = last.and(point),
            _ => self.points.push(point),
        }
        if self.points.len() > POINTS {
            self.points = self.points.chunks(2).map(merged).collect();
            self.halvings += 1;
        }
    }

    /// All points, in the order of time. Only the last one changes, as long as [`Timeline::halvings`] stays.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Grows whenever earlier points change.
    #[must_use]
    pub fn halvings(&self) -> u32 {
        self.halvings
    }
}

fn merged(points: &[Point]) -> Point {
    points.iter().copied().reduce(Point::and).expect("no chunk is empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64) -> Point {
        Point {
            time: step as f64 * 0.1,
            step,
            steps: 1,
            allocated: Bytes(100),
            peak: Bytes(200 + step % 7),
            reserved: Bytes(300),
            line: None,
            loss: step as f64,
            finite: 1,
            micro_batch: 8,
        }
    }

    #[test]
    fn every_step_is_in_one_point() {
        let mut timeline = Timeline::default();
        let steps = 100_000;
        (1..=steps).for_each(|step| timeline.push(point(step)));
        let points = timeline.points();
        assert!(points.len() <= POINTS && points.len() > POINTS / 4, "{}", points.len());
        assert_eq!(points.iter().map(|point| point.steps).sum::<u64>(), steps);
        assert!(points.is_sorted_by(|a, b| a.time < b.time && a.step < b.step));
        let mean = points.iter().map(|point| point.loss * point.steps as f64).sum::<f64>() / steps as f64;
        assert!((mean - (steps + 1) as f64 / 2.0).abs() < 1e-6, "{mean}");
    }

    #[test]
    fn one_high_peak_is_never_thinned_away() {
        let mut timeline = Timeline::default();
        (1..=50_000).for_each(|step| {
            let peak = if step == 20_001 { Bytes(999) } else { Bytes(200) };
            timeline.push(Point { peak, ..point(step) });
        });
        assert_eq!(timeline.points().iter().filter(|point| point.peak == Bytes(999)).count(), 1);
    }

    #[test]
    fn a_loss_that_is_no_number_spoils_no_mean() {
        let (bad, good) = (Point { loss: f64::NAN, finite: 0, ..point(1) }, point(2));
        assert_eq!(bad.and(good).loss, 2.0);
        assert_eq!(good.and(bad).loss, 2.0);
        assert!(bad.and(bad).loss.is_nan());
    }
}
