//! A day of figures in bounded memory.

use std::collections::VecDeque;

/// How far back figures are kept as they came, in seconds, and how many at most.
const FRESH: Span = Span { seconds: 0.0, reach: 600.0 };
const MOST_FRESH: usize = 4800;
/// Then one point for each of these spans.
const COARSE: [Span; 2] = [Span { seconds: 10.0, reach: 7_200.0 }, Span { seconds: 60.0, reach: 86_400.0 }];

/// How dense points are, and how far back they go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The time that one point stands for; 0 for a single sample.
    pub seconds: f64,
    /// How far back such points go, in seconds.
    pub reach: f64,
}

/// The figures at a moment, or the largest of each within a span.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The moment, or where the span begins.
    pub time: f64,
    /// One figure for each series; NaN where there was none.
    pub values: Box<[f64]>,
}

/// Keeps the figures of some series for a day: as they came for ten minutes, then the largest in each ten seconds for
/// two hours, then the largest in each minute.
///
/// Peaks of memory are never lost by thinning. A day of two samples a second takes about 3,400 points, whatever is
/// pushed never more than about 7,000.
#[derive(Debug, Clone)]
pub struct Recorder {
    names: Vec<String>,
    fresh: VecDeque<Point>,
    coarse: [VecDeque<Point>; 2],
    latest: f64,
}

impl Recorder {
    /// A recorder of series with these names.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        Self { names, fresh: VecDeque::new(), coarse: Default::default(), latest: f64::NEG_INFINITY }
    }

    /// The names of the series, in the order of [`Point::values`].
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Takes the figures of a moment. Too few are filled up with NaN, and too many are cut off. Where time goes
    /// backwards they count as of the latest moment, and a time that is no number is ignored.
    pub fn push(&mut self, time: f64, values: &[f64]) {
        if !time.is_finite() {
            return;
        }
        self.latest = self.latest.max(time);
        let values = (0..self.names.len()).map(|index| values.get(index).copied().unwrap_or(f64::NAN)).collect();
        self.fresh.push_back(Point { time: self.latest, values });
        self.thin();
    }

    /// All points, oldest first.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.coarse[1].iter().chain(&self.coarse[0]).chain(&self.fresh)
    }

    /// The points after `time`, oldest first: what someone who was here before has not seen.
    pub fn since(&self, time: f64) -> impl Iterator<Item = &Point> {
        self.points().filter(move |point| point.time > time)
    }

    /// How many points are kept.
    pub fn len(&self) -> usize {
        self.fresh.len() + self.coarse.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that the points take, in bytes, without what allocators add.
    pub fn memory_bytes(&self) -> usize {
        let places = self.fresh.capacity() + self.coarse.iter().map(VecDeque::capacity).sum::<usize>();
        places * size_of::<Point>() + self.len() * self.names.len() * size_of::<f64>()
    }

    fn thin(&mut self) {
        let now = self.latest;
        let [middle, far] = &mut self.coarse;
        while let Some(point) = self.fresh.pop_front_if(|point| now - point.time > FRESH.reach) {
            merge(middle, point, COARSE[0].seconds);
        }
        while self.fresh.len() > MOST_FRESH
            && let Some(point) = self.fresh.pop_front()
        {
            merge(middle, point, COARSE[0].seconds);
        }
        while let Some(point) = middle.pop_front_if(|point| now - point.time > COARSE[0].reach) {
            merge(far, point, COARSE[1].seconds);
        }
        while far.pop_front_if(|point| now - point.time > COARSE[1].reach).is_some() {}
    }
}

/// Adds a point to the last of `points` if it belongs to the same span, else begins a span.
fn merge(points: &mut VecDeque<Point>, point: Point, seconds: f64) {
    let start = (point.time / seconds).floor() * seconds;
    match points.back_mut() {
        Some(last) if last.time >= start => {
            for (largest, value) in last.values.iter_mut().zip(&point.values) {
                *largest = largest.max(*value);
            }
        }
        _ => points.push_back(Point { time: start, values: point.values }),
    }
}
