//! What the page is told of runs, as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use crate::machine::{History, ProcessMonitor};
use crate::runs::{Board, Mark, Point, Run};

/// Points as one list a figure, which is a third of the bytes.
#[derive(Debug, Default, Serialize)]
struct Columns {
    time: Vec<f64>,
    step: Vec<u64>,
    allocated: Vec<u64>,
    peak: Vec<u64>,
    reserved: Vec<u64>,
    line: Vec<Option<u64>>,
    loss: Vec<Option<f64>>,
    micro_batch: Vec<u32>,
}

impl Columns {
    fn of(points: &[Point]) -> Columns {
        let mut columns = Columns::default();
        for point in points {
            columns.time.push(rounded(point.time));
            columns.step.push(point.step);
            columns.allocated.push(point.allocated.get());
            columns.peak.push(point.peak.get());
            columns.reserved.push(point.reserved.get());
            columns.line.push(point.line.map(|line| line.get()));
            columns.loss.push(Some(point.loss).filter(|loss| loss.is_finite()));
            columns.micro_batch.push(point.micro_batch);
        }
        columns
    }
}

/// What a page has of a run already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCursor<'a> {
    pub(crate) generation: &'a str,
    pub(crate) points: usize,
    pub(crate) marks: usize,
    pub(crate) moments: usize,
}

/// The list of runs, the watched process, and the figures of the machine.
pub(crate) fn list(board: &Board) -> Value {
    json!({ "runs": board.rows(), "process": board.monitor().map(ProcessMonitor::row), "live": board.live() })
}

/// What is new of a watched process, in the form of a run without points and marks.
pub(crate) fn process(monitor: &ProcessMonitor, known: &PageCursor<'_>) -> Value {
    let generation = monitor.history().halvings().to_string();
    let moments = monitor.history().moments().len();
    let is_same = known.generation == generation && known.moments <= moments;
    let from = if is_same { known.moments.saturating_sub(1) } else { 0 };
    json!({
        "generation": generation,
        "points_from": 0,
        "points": Columns::default(),
        "marks_from": 0,
        "marks": [],
        "summary": null,
        "forecasts": [],
        "host_from": from,
        "host": host(monitor.history(), from),
    })
}

/// The points and marks of a run from `points_from` and `marks_from` on; the page drops what it has from there.
pub(crate) fn run(run: &Run, known: &PageCursor<'_>) -> Value {
    let generation = run.generation();
    let (points, marks, moments) = (run.timeline().points(), run.marks().all(), run.history().moments().len());
    let is_same = known.generation == generation
        && known.points <= points.len()
        && known.marks <= marks.len()
        && known.moments <= moments;
    // The last point and the last moment still grow, so they are told again.
    let (points_from, marks_from, host_from) = match is_same {
        true => (known.points.saturating_sub(1), known.marks, known.moments.saturating_sub(1)),
        false => (0, 0, 0),
    };
    json!({
        "generation": generation,
        "points_from": points_from,
        "points": Columns::of(&points[points_from..]),
        "marks_from": marks_from,
        "marks": marks[marks_from..].iter().map(mark).collect::<Vec<Value>>(),
        "summary": run.summary(),
        "forecasts": run.forecasts(),
        "host_from": host_from,
        "host": host(run.history(), host_from),
    })
}

/// Moments as one list a figure; `time` is one of them.
fn host(history: &History, from: usize) -> Value {
    let moments = &history.moments()[from..];
    let mut columns = serde_json::Map::new();
    columns.insert("time".to_owned(), moments.iter().map(|moment| rounded(moment.time)).collect());
    for (at, name) in history.names().iter().enumerate() {
        columns.insert(name.clone(), History::column(moments, at).map(|value| json!(value)).collect());
    }
    Value::Object(columns)
}

/// A time in milliseconds, which is as exact as a chart can be.
fn rounded(time: f64) -> f64 {
    (time * 1e3).round() / 1e3
}

/// All of every run, for a page that asks for nothing.
pub(crate) fn whole(board: &Board) -> Value {
    let mut whole = list(board);
    whole["data"] = board.runs().iter().map(|each| run(each, &PageCursor::default())).collect();
    whole
}

fn mark(mark: &Mark) -> Value {
    json!({
        "kind": mark.kind,
        "time": mark.time,
        "seconds": mark.seconds,
        "step": mark.step,
        "count": mark.count,
        "loss": mark.loss,
        "text": mark.sentence(),
        "detail": mark.detail,
    })
}
