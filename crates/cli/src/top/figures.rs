//! What `lowtide top` says of a run in words and figures, above the charts.

use lowtide_core::grouped;
use lowtide_watch::{Run, RunState};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

use super::screen::{IN_USE, LIMIT, RESERVED};
use crate::output::printable;

/// How many lines [`figure_lines`] takes.
pub(super) const LINES: u16 = 4;

/// Its name, its state, and how long it has still to go.
pub(super) fn heading(run: &Run, at: usize, runs: usize) -> Line<'static> {
    let (word, colour) = match run.state() {
        RunState::Waiting => ("waiting", Color::Gray),
        RunState::Running => ("running", Color::Green),
        RunState::Ended { how: "finished" } => ("finished", Color::Green),
        RunState::Ended { how: "interrupted" } => ("interrupted", Color::Yellow),
        RunState::Ended { how: "line" } => ("stopped at the memory limit", Color::Red),
        RunState::Ended { .. } => ("ended with an error", Color::Red),
        RunState::Gone { .. } => ("killed", Color::Red),
    };
    let of = if runs > 1 { format!(" ({} of {runs})", at + 1) } else { String::new() };
    let name = Span::from(printable(run.name())).bold();
    let left = run.time_left().map_or(String::new(), |left| format!("  {} left", left.text));
    Line::from(vec![name, Span::from(format!("{of}  ")), Span::from(word).fg(colour).bold(), Span::from(left)])
}

/// Steps and loss, memory now, peaks, failures.
pub(super) fn figure_lines(run: &Run) -> Vec<Line<'static>> {
    let figures = run.figures();
    let of = figures.steps.map_or(String::new(), |steps| format!("/{}", grouped(steps)));
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
    let (speed, unit) = match figures.tokens_per_second {
        Some(tokens) => (tokens, "tokens/s"),
        None => (figures.samples_per_second, "samples/s"),
    };
    let first = format!(
        "step {}{of}  loss {}  evaluation {}  {} {unit}",
        grouped(figures.step),
        number(figures.loss),
        number(figures.eval_loss),
        // A rate is never negative; beyond 2^64 it is shown as that.
        grouped(speed.round() as u64)
    );
    let limit = run.header().and_then(|header| header.line);
    let limit = limit.map_or("no limit".to_owned(), |limit| format!("limit {limit}"));
    let second = vec![
        Span::from(format!("{} allocated", figures.peak)).fg(IN_USE),
        Span::from(format!("  {} reserved", figures.reserved)).fg(RESERVED),
        Span::from(format!("  {limit}")).fg(LIMIT),
    ];
    vec![Line::from(first), Line::from(second), Line::from(peaks(run)), failures(run)]
}

fn peaks(run: &Run) -> String {
    let figures = run.figures();
    let failed = figures.failed_reserved.map_or(String::new(), |failed| format!("  failed try {failed}"));
    let free = run.free().map_or(String::new(), |free| format!("  {} free {}", free.bytes, printable(&free.place)));
    format!("peak {}{failed}{free}", figures.highest_reserved)
}

/// Out-of-memory errors, of a run or of a command.
pub(super) fn failures(run: &Run) -> Line<'static> {
    let figures = run.figures();
    Line::from(match figures.out_of_memory {
        0 => Span::from("never out of memory").dim(),
        failures => Span::from(format!("out of memory {failures}, recovered {}", figures.recovered)).fg(Color::Yellow),
    })
}
