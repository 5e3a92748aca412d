//! The chart of a run, for reports and papers.

use std::iter;

use lowtide_core::{Bytes, EventKind, counted};

use super::drawing::{Anchor, Drawing, Paint, Pen, Place, Shape};
use super::rail::rail;
use crate::machine::CHILDREN;
use crate::runs::{Mark, Point, Run};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
/// The edges of the memory chart and of the loss chart under it.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 944.0;
const MEMORY: (f64, f64) = (64.0, 300.0);
const LOSS: (f64, f64) = (350.0, 440.0);

/// How thick curves are.
const CURVE: f64 = 1.6;
const INK: u32 = 0x13212c;
const PALE_INK: u32 = 0x5b6b78;

/// Memory and loss of a run over time, with its limit and every out-of-memory error, retry and cleaning.
#[must_use]
pub fn chart(run: &Run) -> Drawing {
    let points = run.timeline().points();
    let marks = run.marks().all();
    let end = run.figures().time.max(1e-3);
    let x = |time: f64| LEFT + (RIGHT - LEFT) * (time / end).clamp(0.0, 1.0);
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    drawing.add(title(run));
    if run.command().is_some() {
        machine(&mut drawing, run, &x);
    } else {
        memory(&mut drawing, points, marks, &x);
        loss(&mut drawing, points, marks, &x);
    }
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let anchor = if share == 0.0 {
            Anchor::Start
        } else if share == 1.0 {
            Anchor::End
        } else {
            Anchor::Middle
        };
        drawing.add(label((x(end * share), HEIGHT - 18.0), anchor, &seconds(end * share)));
    }
    drawing
}

fn title(run: &Run) -> Shape {
    let limit = run.header().and_then(|header| header.line).map_or(String::new(), |limit| format!(", limit {limit}"));
    let figures = run.figures();
    let (peak, failed) = match run.command() {
        Some(_) => (figures.highest_resident, figures.failed_resident),
        None => (Some(figures.highest_reserved), figures.failed_reserved),
    };
    let peak = peak.map_or(String::new(), |peak| format!(", peak {peak}"));
    let failed = failed.map_or(String::new(), |failed| format!(", failed try {failed}"));
    let text = format!(
        "{}: {}{peak}{failed}{limit}, {}",
        run.name(),
        counted(figures.step, "step"),
        counted(figures.out_of_memory, "out-of-memory error")
    );
    Shape::Text { place: (16.0, 26.0), anchor: Anchor::Start, size: 15.0, paint: Paint::solid(INK), text }
}

fn memory(drawing: &mut Drawing, points: &[Point], marks: &[Mark], x: &impl Fn(f64) -> f64) {
    let most = |point: &Point| point.reserved.max(point.peak).max(point.line.unwrap_or_default()).get();
    let failed = marks.iter().filter_map(|mark| mark.reserved).max().unwrap_or_default().get();
    let high = points.iter().map(most).max().unwrap_or(0).max(failed).max(1024);
    let (top, bottom) = MEMORY;
    let y = |bytes: Bytes| bottom - (bottom - top) * (bytes.get() as f64 / (high as f64 * 1.06));
    sizes(drawing, high, y);
    for mark in marks.iter().filter(|mark| mark.kind == EventKind::Evaluated && mark.count == 1) {
        let (from, to) = (x(mark.time - mark.seconds), x(mark.time));
        let paint = Paint { colour: 0x7c3aed, opacity: 0.2 };
        let (width, height) = ((to - from).max(1.5), bottom - top);
        drawing.add(Shape::Rectangle { corner: (from, top), width, height, paint });
    }
    area(drawing, points, x, |point| y(point.peak), Paint { colour: 0x38a8d8, opacity: 0.4 });
    area(drawing, points, x, |point| y(point.allocated), Paint { colour: 0x0e7490, opacity: 0.6 });
    let reserved = points.iter().map(|point| Some((x(point.time), y(point.reserved))));
    curve(drawing, reserved, 0x64748b, Pen::solid(CURVE));
    let line = points.iter().map(|point| point.line.map(|line| (x(point.time), y(line))));
    curve(drawing, line, 0xd6264f, Pen { width: CURVE, dash: Some((7.0, 4.0)) });
    failed_tries(drawing, marks, x, y);
    rail(marks, x, MEMORY).into_iter().for_each(|shape| drawing.add(shape));
}

/// Memory of a command's processes and of the cards, which is all that is seen of it from outside.
fn machine(drawing: &mut Drawing, run: &Run, x: &impl Fn(f64) -> f64) {
    const COLOURS: [u32; 6] = [0xa16207, 0x7c3aed, 0x0e7490, 0xd6264f, 0x15803d, 0x64748b];
    let history = run.history();
    let cards = history.names().iter().filter(|name| name.starts_with("gpu"));
    let curves: Vec<(&str, u32)> = iter::once((CHILDREN, 0x2f855a))
        .chain(cards.zip(COLOURS.iter().cycle()).map(|(name, colour)| (name.as_str(), *colour)))
        .collect();
    let most = curves.iter().filter_map(|(name, _)| history.highest(name)).max();
    let high = most.unwrap_or_default().get().max(1024);
    let (top, bottom) = (MEMORY.0, LOSS.1);
    let y = |bytes: Bytes| bottom - (bottom - top) * (bytes.get() as f64 / (high as f64 * 1.06));
    sizes(drawing, high, y);
    for (at, (name, colour)) in curves.iter().enumerate() {
        let places = history.curve(name).map(|(time, bytes)| Some((x(time), y(bytes))));
        curve(drawing, places, *colour, Pen::solid(CURVE));
        let words = match name.strip_prefix("gpu").and_then(|name| name.strip_suffix("_used")) {
            Some(index) => format!("GPU {index}, all programs"),
            None => "the command, in RAM".to_owned(),
        };
        let left = LEFT + 170.0 * at as f64;
        curve(drawing, [Some((left, 44.0)), Some((left + 18.0, 44.0))].into_iter(), *colour, Pen::solid(2.0));
        drawing.add(label((left + 24.0, 48.0), Anchor::Start, &words));
    }
    rail(run.marks().all(), x, (top, bottom)).into_iter().for_each(|shape| drawing.add(shape));
}

/// Where the tries that ran out of memory came to, apart from the curves of the steps that were done.
fn failed_tries(drawing: &mut Drawing, marks: &[Mark], x: &impl Fn(f64) -> f64, y: impl Fn(Bytes) -> f64) {
    const ARM: f64 = 3.5;
    for (time, reserved) in marks.iter().filter_map(|mark| Some((mark.time, mark.reserved?))) {
        let (x, y) = (x(time), y(reserved));
        let pieces = vec![vec![(x - ARM, y - ARM), (x + ARM, y + ARM)], vec![(x - ARM, y + ARM), (x + ARM, y - ARM)]];
        let cross = Shape::Curve { pieces, paint: Paint::solid(0xdc2626), pen: Pen::solid(CURVE) };
        drawing.add(Shape::Group {
            title: format!("The try that ran out of memory reserved {reserved}."),
            shapes: vec![cross],
        });
    }
}

fn loss(drawing: &mut Drawing, points: &[Point], marks: &[Mark], x: &impl Fn(f64) -> f64) {
    let evaluations = || marks.iter().filter_map(|mark| mark.loss.map(|loss| (mark.time, loss)));
    let values = || points.iter().map(|point| point.loss).filter(|loss| loss.is_finite());
    let all = || values().chain(evaluations().map(|(_, loss)| loss));
    let (low, high) =
        all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), loss| (low.min(loss), high.max(loss)));
    if low > high {
        return;
    }
    let (top, bottom) = LOSS;
    let room = (high - low).max(1e-9);
    let y = |loss: f64| bottom - (bottom - top) * (loss - low) / room;
    drawing.add(label((LEFT, top - 10.0), Anchor::Start, "loss"));
    for value in [low, high] {
        grid(drawing, y(value), &format!("{value:.3}"));
    }
    let places = points.iter().map(|point| point.loss.is_finite().then(|| (x(point.time), y(point.loss))));
    curve(drawing, places, 0x0e7490, Pen::solid(CURVE));
    for (time, loss) in evaluations() {
        drawing.add(Shape::Circle { centre: (x(time), y(loss)), radius: 3.0, paint: Paint::solid(0x7c3aed) });
    }
}

/// The sizes beside a chart of memory, in quarters of the highest.
fn sizes(drawing: &mut Drawing, high: u64, y: impl Fn(Bytes) -> f64) {
    for quarter in 0..=4 {
        let value = Bytes(high / 4 * quarter);
        grid(drawing, y(value), &if quarter == 0 { "0".to_owned() } else { value.to_string() });
    }
}

fn grid(drawing: &mut Drawing, y: f64, text: &str) {
    curve(drawing, [Some((LEFT, y)), Some((RIGHT, y))].into_iter(), 0xe6ecf0, Pen::solid(1.0));
    drawing.add(label((LEFT - 8.0, y + 4.0), Anchor::End, text));
}

fn label(place: Place, anchor: Anchor, text: &str) -> Shape {
    Shape::Text { place, anchor, size: 12.0, paint: Paint::solid(PALE_INK), text: text.to_owned() }
}

/// A line through the places that are there, broken where one is missing.
fn curve(drawing: &mut Drawing, places: impl Iterator<Item = Option<Place>>, colour: u32, pen: Pen) {
    let mut pieces: Vec<Vec<Place>> = Vec::new();
    let mut is_drawing = false;
    for place in places {
        if let Some(place) = place {
            match pieces.last_mut().filter(|_| is_drawing) {
                Some(piece) => piece.push(place),
                None => pieces.push(vec![place]),
            }
        }
        is_drawing = place.is_some();
    }
    if !pieces.is_empty() {
        drawing.add(Shape::Curve { pieces, paint: Paint::solid(colour), pen });
    }
}

fn area(drawing: &mut Drawing, points: &[Point], x: &impl Fn(f64) -> f64, y: impl Fn(&Point) -> f64, paint: Paint) {
    let [first, .., last] = points else { return };
    let bottom = MEMORY.1;
    let mut corners = vec![(x(first.time), bottom)];
    corners.extend(points.iter().map(|point| (x(point.time), y(point))));
    corners.push((x(last.time), bottom));
    drawing.add(Shape::Area { corners, paint });
}

fn seconds(time: f64) -> String {
    match time {
        ..120.0 => format!("{time:.1} s"),
        ..7200.0 => format!("{:.1} min", time / 60.0),
        _ => format!("{:.1} h", time / 3600.0),
    }
}
