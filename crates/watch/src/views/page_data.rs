//! What the page is told of runs, as JSON.

use lowtide_core::{printable, printable_lines};
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
pub(crate) fn process(monitor: &ProcessMonitor, cursor: &PageCursor<'_>) -> Value {
    let history = monitor.history();
    news(cursor, &history.halvings().to_string(), &[], &[], history)
}

/// What is new of a run.
pub(crate) fn run(run: &Run, cursor: &PageCursor<'_>) -> Value {
    let (points, marks) = (run.timeline().points(), run.marks().all());
    let mut news = news(cursor, &run.generation(), points, marks, run.history());
    news["summary"] = json!(run.summary());
    news["forecasts"] = json!(run.forecasts());
    news["output"] = json!(run.output());
    news
}

/// Points, marks and moments from the places that are named on; the page drops what it has from there.
fn news(cursor: &PageCursor<'_>, generation: &str, points: &[Point], marks: &[Mark], history: &History) -> Value {
    let is_same = cursor.generation == generation
        && cursor.points <= points.len()
        && cursor.marks <= marks.len()
        && cursor.moments <= history.moments().len();
    // The last point and the last moment still grow, so they are told again.
    let (points_from, marks_from, host_from) = match is_same {
        true => (cursor.points.saturating_sub(1), cursor.marks, cursor.moments.saturating_sub(1)),
        false => (0, 0, 0),
    };
    json!({
        "generation": generation,
        "points_from": points_from,
        "points": Columns::of(&points[points_from..]),
        "marks_from": marks_from,
        "marks": marks[marks_from..].iter().map(mark).collect::<Vec<Value>>(),
        "summary": null,
        "forecasts": [],
        "output": [],
        "host_from": host_from,
        "host": host(history, host_from),
    })
}

/// Moments as one list a figure; `time` is one of them.
fn host(history: &History, from: usize) -> Value {
    let moments = &history.moments()[from..];
    let mut columns = serde_json::Map::new();
    columns.insert("time".to_owned(), moments.iter().map(|moment| rounded(moment.time)).collect());
    // Named where any moment has one: the page keeps the figures that it is told of.
    if history.moments().iter().any(|moment| moment.step.is_some()) {
        columns.insert("step".to_owned(), moments.iter().map(|moment| json!(moment.step)).collect());
    }
    for (at, name) in history.names().iter().enumerate() {
        columns.insert(name.clone(), History::column(moments, at).map(|value| json!(value)).collect());
    }
    Value::Object(columns)
}

/// A text of JSON for the page: what came from outside, names of things included, turns nothing around there.
pub(crate) fn text(value: Value) -> String {
    shown(value).to_string()
}

fn shown(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(printable_lines(&text)),
        Value::Array(values) => values.into_iter().map(shown).collect(),
        Value::Object(pairs) => pairs.into_iter().map(|(key, value)| (printable(&key), shown(value))).collect(),
        plain => plain,
    }
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
        "reserved": mark.reserved,
        "first_step": mark.first_step,
        "text": mark.sentence(),
        "detail": mark.detail,
    })
}
