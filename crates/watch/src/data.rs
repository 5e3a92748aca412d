//! What the page is told of runs, as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use crate::board::Board;
use crate::marks::Mark;
use crate::run::Run;
use crate::timeline::Point;

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
            columns.time.push((point.time * 1e3).round() / 1e3);
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
pub(crate) struct Known<'a> {
    pub(crate) generation: &'a str,
    pub(crate) points: usize,
    pub(crate) marks: usize,
}

/// The list of runs and the figures of the machine.
pub(crate) fn list(board: &Board) -> Value {
    json!({ "runs": board.rows(), "live": board.live() })
}

/// The points and marks of a run from `points_from` and `marks_from` on; the page drops what it has from there.
pub(crate) fn run(run: &Run, known: &Known<'_>) -> Value {
    let generation = run.generation();
    let (points, marks) = (run.timeline().points(), run.marks().all());
    let is_same = known.generation == generation && known.points <= points.len() && known.marks <= marks.len();
    // The last point still grows, so it is told again.
    let (points_from, marks_from) = if is_same { (known.points.saturating_sub(1), known.marks) } else { (0, 0) };
    json!({
        "generation": generation,
        "points_from": points_from,
        "points": Columns::of(&points[points_from..]),
        "marks_from": marks_from,
        "marks": marks[marks_from..].iter().map(mark).collect::<Vec<Value>>(),
        "summary": run.summary(),
    })
}

/// All of every run, for a page that asks for nothing.
pub(crate) fn whole(board: &Board) -> Value {
    let mut whole = list(board);
    whole["data"] = board.runs().iter().map(|each| run(each, &Known::default())).collect();
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
