//! The chart of a run as SVG, for reports and papers.

use std::fmt::Write;
use std::iter;

use lowtide_core::{Bytes, EventKind, printable};

use crate::machine::CHILDREN;
use crate::runs::{Mark, Point, Run};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
/// The edges of the memory chart and of the loss chart under it.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 944.0;
const MEMORY: (f64, f64) = (64.0, 300.0);
const LOSS: (f64, f64) = (350.0, 440.0);

/// Memory and loss of a run over time, with the line and every out-of-memory error, answer and cleaning.
#[must_use]
pub fn chart(run: &Run) -> String {
    let points = run.timeline().points();
    let marks = run.marks().all();
    let end = run.figures().time.max(1e-3);
    let x = |time: f64| LEFT + (RIGHT - LEFT) * (time / end).clamp(0.0, 1.0);
    let mut svg = head(run);
    if run.command().is_some() {
        machine(&mut svg, run, &x);
    } else {
        memory(&mut svg, points, marks, &x);
        loss(&mut svg, points, marks, &x);
    }
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let anchor = if share == 0.0 {
            "start"
        } else if share == 1.0 {
            "end"
        } else {
            "middle"
        };
        label(&mut svg, x(end * share), HEIGHT - 18.0, anchor, &seconds(end * share));
    }
    svg.push_str("</svg>\n");
    svg
}

fn head(run: &Run) -> String {
    let line = run.header().and_then(|header| header.line).map_or(String::new(), |line| format!(", line {line}"));
    let figures = run.figures();
    let most = figures.highest_resident.filter(|_| run.command().is_some()).unwrap_or(figures.highest_reserved);
    let title = escaped(&format!(
        "{}: {} steps, at most {most}{line}, {} out-of-memory errors",
        run.name(),
        figures.step,
        figures.out_of_memory
    ));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#5b6b78\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\" fill=\"#13212c\">{title}</text>\n"
    )
}

fn memory(svg: &mut String, points: &[Point], marks: &[Mark], x: &impl Fn(f64) -> f64) {
    let most = |point: &Point| point.reserved.max(point.peak).max(point.line.unwrap_or_default()).get();
    let high = points.iter().map(most).max().unwrap_or(0).max(1024);
    let (top, bottom) = MEMORY;
    let y = |bytes: Bytes| bottom - (bottom - top) * (bytes.get() as f64 / (high as f64 * 1.06));
    for quarter in 0..=4 {
        let value = Bytes(high / 4 * quarter);
        let told = if quarter == 0 { "0".to_owned() } else { value.to_string() };
        grid(svg, y(value), &told);
    }
    for mark in marks.iter().filter(|mark| mark.kind == EventKind::Evaluated && mark.count == 1) {
        let (from, to) = (x(mark.time - mark.seconds), x(mark.time));
        let width = (to - from).max(1.5);
        push(
            svg,
            format_args!(
                "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"#7c3aed\" \
                 fill-opacity=\"0.2\"/>",
                bottom - top
            ),
        );
    }
    area(svg, points, x, |point| y(point.peak), "#38a8d8", 0.4);
    area(svg, points, x, |point| y(point.allocated), "#0e7490", 0.6);
    path(svg, points.iter().map(|point| Some((x(point.time), y(point.reserved)))), "#64748b", "");
    let line = points.iter().map(|point| point.line.map(|line| (x(point.time), y(line))));
    path(svg, line, "#d6264f", " stroke-dasharray=\"7 4\"");
    draw_marks(svg, marks, x);
}

/// Memory of a command's processes and of the cards, which is all that is seen of it from outside.
fn machine(svg: &mut String, run: &Run, x: &impl Fn(f64) -> f64) {
    const COLOURS: [&str; 6] = ["#a16207", "#7c3aed", "#0e7490", "#d6264f", "#15803d", "#64748b"];
    let history = run.history();
    let cards = history.names().iter().filter(|name| name.starts_with("gpu"));
    let curves: Vec<(&str, &str)> = iter::once((CHILDREN, "#2f855a"))
        .chain(cards.zip(COLOURS.iter().cycle()).map(|(name, colour)| (name.as_str(), *colour)))
        .collect();
    let most = curves.iter().filter_map(|(name, _)| history.highest(name)).max();
    let high = most.unwrap_or_default().get().max(1024);
    let (top, bottom) = (MEMORY.0, LOSS.1);
    let y = |bytes: Bytes| bottom - (bottom - top) * (bytes.get() as f64 / (high as f64 * 1.06));
    for quarter in 0..=4 {
        let value = Bytes(high / 4 * quarter);
        grid(svg, y(value), &if quarter == 0 { "0".to_owned() } else { value.to_string() });
    }
    for (at, (name, colour)) in curves.iter().enumerate() {
        path(svg, history.curve(name).map(|(time, bytes)| Some((x(time), y(bytes)))), colour, "");
        let words = match name.strip_prefix("gpu").and_then(|name| name.strip_suffix("_used")) {
            Some(index) => format!("GPU {index}, all programs"),
            None => "the command, in RAM".to_owned(),
        };
        let place = LEFT + 170.0 * at as f64;
        push(svg, format_args!("<path d=\"M{place} 44h18\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
        label(svg, place + 24.0, 48.0, "start", &words);
    }
    draw_marks(svg, run.marks().all(), x);
}

/// What matters most is drawn last, on top.
fn draw_marks(svg: &mut String, marks: &[Mark], x: &impl Fn(f64) -> f64) {
    for (kind, colour) in
        [(EventKind::Cleaned, "#15803d"), (EventKind::Rung, "#c2710c"), (EventKind::OutOfMemory, "#dc2626")]
    {
        for mark in marks.iter().filter(|mark| mark.kind == kind) {
            draw_mark(svg, mark, x(mark.time), colour);
        }
    }
}

fn draw_mark(svg: &mut String, mark: &Mark, x: f64, colour: &str) {
    let (top, bottom) = MEMORY;
    let title = escaped(&mark.sentence());
    let head = match mark.kind {
        EventKind::OutOfMemory => format!("<path d=\"M{x:.1} {:.1}l-6 -11h12z\"/>", top - 5.0),
        _ => format!("<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"/>", top - 10.0),
    };
    let stem = format!("<path d=\"M{x:.1} {bottom}V{:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.5\"/>", top - 6.0);
    push(svg, format_args!("<g fill=\"{colour}\"><title>{title}</title>{stem}{head}</g>"));
}

fn loss(svg: &mut String, points: &[Point], marks: &[Mark], x: &impl Fn(f64) -> f64) {
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
    label(svg, LEFT, top - 10.0, "start", "loss");
    for value in [low, high] {
        grid(svg, y(value), &format!("{value:.3}"));
    }
    let line = points.iter().map(|point| point.loss.is_finite().then(|| (x(point.time), y(point.loss))));
    path(svg, line, "#0e7490", "");
    for (time, loss) in evaluations() {
        push(svg, format_args!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#7c3aed\"/>", x(time), y(loss)));
    }
}

fn grid(svg: &mut String, y: f64, text: &str) {
    push(svg, format_args!("<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#e6ecf0\"/>"));
    label(svg, LEFT - 8.0, y + 4.0, "end", text);
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escaped(text);
    push(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
}

/// A line through the places that are there, broken where one is missing.
fn path(svg: &mut String, places: impl Iterator<Item = Option<(f64, f64)>>, colour: &str, more: &str) {
    let (mut d, mut is_drawing) = (String::new(), false);
    for place in places {
        if let Some((x, y)) = place {
            let command = if is_drawing { 'L' } else { 'M' };
            write!(d, "{command}{x:.1} {y:.1}").expect("a string takes all text");
        }
        is_drawing = place.is_some();
    }
    if !d.is_empty() {
        let style = "fill=\"none\" stroke-width=\"1.6\" stroke-linejoin=\"round\"";
        push(svg, format_args!("<path d=\"{d}\" {style} stroke=\"{colour}\"{more}/>"));
    }
}

fn area(
    svg: &mut String,
    points: &[Point],
    x: &impl Fn(f64) -> f64,
    y: impl Fn(&Point) -> f64,
    colour: &str,
    strength: f64,
) {
    let [first, .., last] = points else { return };
    let bottom = MEMORY.1;
    let mut d = format!("M{:.1} {bottom}", x(first.time));
    for point in points {
        write!(d, "L{:.1} {:.1}", x(point.time), y(point)).expect("a string takes all text");
    }
    write!(d, "L{:.1} {bottom}Z", x(last.time)).expect("a string takes all text");
    push(svg, format_args!("<path d=\"{d}\" fill=\"{colour}\" fill-opacity=\"{strength}\"/>"));
}

fn push(svg: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(svg, "{element}").expect("a string takes all text");
}

fn seconds(time: f64) -> String {
    match time {
        ..120.0 => format!("{time:.1} s"),
        ..7200.0 => format!("{:.1} min", time / 60.0),
        _ => format!("{:.1} h", time / 3600.0),
    }
}

/// A text as XML has it; characters that XML has not are written out.
fn escaped(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
