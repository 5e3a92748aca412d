//! Runs and the machine as text that a Prometheus server reads.

use lowtide_sensors::prometheus::{self, RunFigures};

use crate::board::Board;
use crate::run::{Run, State};

/// The content type of [`text`].
pub(crate) const KIND: &str = prometheus::CONTENT_TYPE;

/// A page of metrics: the newest sample of the machine, and every run.
pub(crate) fn text(board: &Board) -> String {
    let runs: Vec<RunFigures> = board.runs().iter().map(|run| figures(run, board)).collect();
    prometheus::exposition(board.sample(), board.detail(), &runs)
}

fn figures(run: &Run, board: &Board) -> RunFigures {
    let figures = run.figures();
    let has_begun = figures.step > 0;
    let is_only = board.runs().iter().filter(|other| other.name() == run.name()).count() == 1;
    let mut metrics: Vec<(String, f64)> = figures.eval_loss.map(|loss| ("loss".to_owned(), loss)).into_iter().collect();
    metrics.extend(figures.metrics.iter().map(|(name, value)| (name.to_owned(), value)));
    RunFigures {
        // Series of two runs must differ in their labels.
        name: if is_only { run.name().to_owned() } else { run.folder().display().to_string() },
        phase: Some(word(run.state()).to_owned()),
        steps: Some(figures.step),
        loss: figures.loss,
        micro_batch: has_begun.then(|| figures.micro_batch.into()),
        line_bytes: run.head().and_then(|head| head.line).map(|line| line.get()),
        allocated_bytes: has_begun.then(|| figures.allocated.get()),
        reserved_bytes: has_begun.then(|| figures.reserved.get()),
        peak_allocated_bytes: has_begun.then(|| figures.highest_peak.get()),
        allocator_retries: figures.retries,
        out_of_memory: Some(figures.out_of_memory),
        metrics,
    }
}

fn word(state: &State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Running => "running",
        State::Ended { how } => how,
        State::Gone { .. } => "killed",
    }
}
