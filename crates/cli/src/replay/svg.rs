//! The timeline of a replay as a drawing.

use lowtide_core::Bytes;
use lowtide_sim::{Level, SIZE_CLASSES, Timeline};
use lowtide_watch::{Anchor, Drawing, Paint, Pen, Place, Shape};

use super::findings::Findings;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 944.0;
const TOP: f64 = 106.0;
const BOTTOM: f64 = 434.0;
/// As many stretches of entries as there are points across.
const STRETCHES: u32 = 860;
/// Marks of errors that are nearer to each other are one.
const NEAR: f64 = 7.0;

const INK: u32 = 0x13212c;
const PALE_INK: u32 = 0x5b6b78;
const GRID: u32 = 0xe6ecf0;
const RESERVED: u32 = 0x64748b;
const LIMIT: u32 = 0xd6264f;
const OOM: u32 = 0xdc2626;

/// The classes of sizes in words and colours, the smallest first.
pub(super) const CLASSES: [(&str, u32); SIZE_CLASSES.len()] = [
    ("below 1 MiB", 0xbfe3f0),
    ("1 to 10 MiB", 0x7cc4e2),
    ("10 to 100 MiB", 0x38a8d8),
    ("100 MiB to 1 GiB", 0x0e7490),
    ("1 GiB and more", 0x0b4a5e),
];

/// Where things stand in the drawing.
struct Scale {
    entries: f64,
    high: f64,
}

impl Scale {
    fn x(&self, entry: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (entry / self.entries).clamp(0.0, 1.0)
    }

    fn y(&self, bytes: u64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (bytes as f64 / self.high).clamp(0.0, 1.0)
    }
}

/// Live memory stacked by size class, what was reserved above it, the limit as a line, and where memory ran out; `times` are those of the
/// entries in microseconds, where they are known.
pub(super) fn timeline_drawing(name: &str, findings: &Findings, timeline: &Timeline, times: &[u64]) -> Drawing {
    let levels = timeline.levels(STRETCHES);
    let most = levels.iter().map(|level| level.reserved.max(level.live_in_all())).max().unwrap_or(0);
    // A limit far above all of it would press it flat.
    let limit = findings.limit.filter(|limit| *limit <= most.saturating_mul(4));
    let high = most.max(limit.unwrap_or(0)).max(1024);
    let scale = Scale { entries: f64::from(timeline.entries.max(1)), high: high as f64 * 1.04 };
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    heading(&mut drawing, name, findings);
    sizes(&mut drawing, high, &scale);
    let reserved = steps(&levels, &scale, |level| level.reserved);
    drawing.add(Shape::Area { corners: closed(&reserved), paint: Paint { colour: RESERVED, opacity: 0.16 } });
    stack(&mut drawing, &levels, &scale);
    line(&mut drawing, reserved, RESERVED, Pen::solid(1.4));
    if let Some(limit) = limit {
        let y = scale.y(limit);
        line(&mut drawing, vec![(LEFT, y), (RIGHT, y)], LIMIT, Pen { width: 1.6, dash: Some((7.0, 4.0)) });
    }
    errors(&mut drawing, timeline, &scale);
    legend(&mut drawing, &levels, findings, timeline, limit);
    moments(&mut drawing, timeline, times, &scale);
    drawing
}

fn heading(drawing: &mut Drawing, name: &str, findings: &Findings) {
    let settings = if findings.conf.is_empty() { "PyTorch's own settings" } else { &findings.conf };
    let peaks = &findings.simulated.peaks;
    let peaks = format!(
        "peak reserved {}, allocated {}, under {settings}",
        Bytes(peaks.peak_reserved),
        Bytes(peaks.peak_allocated)
    );
    text(drawing, (16.0, 26.0), Anchor::Start, 15.0, INK, &format!("{name}, {}", findings.device_name()));
    text(drawing, (16.0, 46.0), Anchor::Start, 12.0, PALE_INK, &peaks);
}

/// Sizes beside the chart, at round figures.
fn sizes(drawing: &mut Drawing, high: u64, scale: &Scale) {
    let step = round_step(high);
    for value in (0..=high / step).map(|index| index * step) {
        let y = scale.y(value);
        line(drawing, vec![(LEFT, y), (RIGHT, y)], GRID, Pen::solid(1.0));
        let words = if value == 0 { "0".to_owned() } else { Bytes(value).to_string() };
        text(drawing, (LEFT - 8.0, y + 4.0), Anchor::End, 12.0, PALE_INK, &words);
    }
}

/// A step that goes three to six times into a size: 1, 2, 4, 5, 10 and so on of a binary unit.
pub(super) fn round_step(high: u64) -> u64 {
    let unit = 1_u64 << (high.max(1).ilog2() / 10 * 10);
    let steps = [1, 2, 4, 5, 10, 20, 25, 50, 100, 200, 250].map(|count| count * unit);
    // Below four of a unit, parts of it.
    let parts = [8, 4, 2].map(|part| (unit / part).max(1));
    parts.into_iter().chain(steps).find(|step| high / step <= 6).unwrap_or(high)
}

fn stack(drawing: &mut Drawing, levels: &[Level], scale: &Scale) {
    // From the top down, each over the one before: no gaps show between them. The largest blocks lie lowest.
    for (class, (words, colour)) in CLASSES.iter().enumerate() {
        if levels.iter().all(|level| level.live[class] == 0) {
            continue;
        }
        let corners = closed(&steps(levels, scale, |level| level.live[class..].iter().sum()));
        let paint = Paint::solid(*colour);
        let shapes = vec![Shape::Area { corners, paint }];
        drawing.add(Shape::Group { title: format!("live blocks {words}"), shapes });
    }
}

fn steps(levels: &[Level], scale: &Scale, value: impl Fn(&Level) -> u64) -> Vec<Place> {
    let ends = levels.iter().skip(1).map(|level| f64::from(level.entry)).chain([scale.entries]);
    let mut places: Vec<Place> = Vec::new();
    for (level, end) in levels.iter().zip(ends) {
        let y = scale.y(value(level));
        // Where nothing changes, the line goes on.
        match places.last_mut() {
            Some(last) if last.1 == y => last.0 = scale.x(end),
            _ => places.extend([(scale.x(f64::from(level.entry)), y), (scale.x(end), y)]),
        }
    }
    places
}

fn closed(places: &[Place]) -> Vec<Place> {
    let mut corners = vec![(LEFT, BOTTOM)];
    corners.extend_from_slice(places);
    corners.push((RIGHT, BOTTOM));
    corners
}

fn errors(drawing: &mut Drawing, timeline: &Timeline, scale: &Scale) {
    let mut last = f64::NEG_INFINITY;
    for entry in &timeline.ooms {
        let x = scale.x(f64::from(*entry));
        if x - last < NEAR {
            continue;
        }
        last = x;
        let stem = Shape::Curve {
            pieces: vec![vec![(x, BOTTOM), (x, TOP - 4.0)]],
            paint: Paint { colour: OOM, opacity: 0.6 },
            pen: Pen::solid(1.0),
        };
        let corners = vec![(x, TOP - 2.0), (x - 6.0, TOP - 13.0), (x + 6.0, TOP - 13.0)];
        let head = Shape::Area { corners, paint: Paint::solid(OOM) };
        drawing.add(Shape::Group { title: format!("out of memory at event {entry}"), shapes: vec![stem, head] });
    }
}

fn legend(drawing: &mut Drawing, levels: &[Level], findings: &Findings, timeline: &Timeline, drawn: Option<u64>) {
    let mut keys: Vec<(Paint, f64, String)> = Vec::new();
    for (class, (words, colour)) in CLASSES.iter().enumerate().rev() {
        if levels.iter().any(|level| level.live[class] > 0) {
            keys.push((Paint::solid(*colour), 10.0, (*words).to_owned()));
        }
    }
    keys.push((Paint { colour: RESERVED, opacity: 0.3 }, 10.0, "reserved, unused".to_owned()));
    if let Some(limit) = findings.limit {
        let beyond = if drawn.is_some() { "" } else { ", far above" };
        keys.push((Paint::solid(LIMIT), 2.0, format!("limit {}{beyond}", Bytes(limit))));
    }
    if !timeline.ooms.is_empty() {
        keys.push((Paint::solid(OOM), 10.0, "out of memory".to_owned()));
    }
    let (mut x, mut y) = (LEFT, 66.0);
    for (paint, height, words) in keys {
        let width = 38.0 + 6.3 * words.chars().count() as f64;
        if x + width > RIGHT + 16.0 {
            (x, y) = (LEFT, y + 18.0);
        }
        drawing.add(Shape::Rectangle { corner: (x, y - height / 2.0), width: 14.0, height, paint });
        text(drawing, (x + 19.0, y + 4.0), Anchor::Start, 12.0, PALE_INK, &words);
        x += width;
    }
}

/// Entries under the chart, with seconds where they are known.
fn moments(drawing: &mut Drawing, timeline: &Timeline, times: &[u64], scale: &Scale) {
    for share in 0..=4_u32 {
        let entry = (u64::from(timeline.entries.saturating_sub(1)) * u64::from(share) / 4) as u32;
        let anchor = match share {
            0 => Anchor::Start,
            4 => Anchor::End,
            _ => Anchor::Middle,
        };
        let place = if share == 4 { RIGHT } else { scale.x(f64::from(entry)) };
        text(drawing, (place, BOTTOM + 18.0), anchor, 12.0, PALE_INK, &format!("event {entry}"));
        let begin = times.first();
        if let Some((time, begin)) = times.get(entry as usize).zip(begin) {
            let seconds = time.saturating_sub(*begin) as f64 / 1e6;
            text(drawing, (place, BOTTOM + 34.0), anchor, 12.0, PALE_INK, &format!("{seconds:.2} s"));
        }
    }
}

fn line(drawing: &mut Drawing, places: Vec<Place>, colour: u32, pen: Pen) {
    drawing.add(Shape::Curve { pieces: vec![places], paint: Paint::solid(colour), pen });
}

fn text(drawing: &mut Drawing, place: Place, anchor: Anchor, size: f64, colour: u32, words: &str) {
    drawing.add(Shape::Text { place, anchor, size, paint: Paint::solid(colour), text: words.to_owned() });
}

#[cfg(test)]
mod tests {
    use super::round_step;

    #[test]
    fn sizes_are_round() {
        const MIB: u64 = 1 << 20;
        for (high, step) in
            [(894, 200), (432, 100), (100, 20), (7, 2), (1500, 256), (12 << 10, 2048), (80 << 10, 20 << 10)]
        {
            assert_eq!(round_step(high * MIB) / MIB, step, "{high}");
        }
    }
}
