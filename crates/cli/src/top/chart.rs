//! Charts over the time of a run.

use lowtide_core::Bytes;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType};

/// Curves from the beginning to `end`, in seconds, in a frame.
pub(super) fn chart<'a, const N: usize>(
    title: impl Into<Line<'a>>,
    sets: Vec<Dataset<'a>>,
    end: f64,
    bounds: [f64; 2],
    labels: [String; N],
) -> Chart<'a> {
    Chart::new(sets)
        .block(Block::bordered().title(title).border_style(Style::new().dark_gray()))
        .x_axis(Axis::default().bounds([0.0, end]).labels(times(end)))
        .y_axis(Axis::default().bounds(bounds).labels(labels))
        .legend_position(None)
}

pub(super) fn set<'a>(name: &'a str, data: &'a [(f64, f64)], colour: Color, kind: GraphType) -> Dataset<'a> {
    Dataset::default().name(name).data(data).style(colour).graph_type(kind).marker(Marker::Braille)
}

/// Labels of an axis of bytes.
pub(super) fn sizes(high: f64) -> [String; 3] {
    [0.0, 0.5, 1.0].map(|share| Bytes((high * share) as u64).to_string())
}

fn times(end: f64) -> [String; 3] {
    [0.0, end / 2.0, end].map(|time| match time {
        ..120.0 => format!("{time:.0} s"),
        ..7200.0 => format!("{:.0} min", time / 60.0),
        _ => format!("{:.1} h", time / 3600.0),
    })
}
