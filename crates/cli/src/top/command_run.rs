//! What `lowtide top` draws of a command that `lowtide run` keeps alive: it is seen from outside alone.

use lowtide_core::{Bytes, grouped};
use lowtide_watch::{Board, CommandHeader, Run, RunState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, GraphType, Paragraph};

use super::chart::{chart, set, sizes};
use super::figures::failures;
use super::machine;
use crate::output::printable;

const CARD_COLOURS: [Color; 4] = [Color::Yellow, Color::Magenta, Color::Cyan, Color::Blue];

/// Step, start and batch, memory, failures, the command itself.
pub(super) fn figure_lines(run: &Run, command: &CommandHeader) -> Vec<Line<'static>> {
    let figures = run.figures();
    let step = if figures.step > 0 { grouped(figures.step) } else { "-".to_owned() };
    let batch = command
        .micro_batch
        .map_or(String::new(), |micro| format!("  micro-batch {micro} x {}", command.accumulation.unwrap_or(1)));
    let from = command.resumed_from.as_ref().map_or(String::new(), |path| format!(" from {}", printable(path)));
    let first = format!("step {step}  start {}{from}{batch}", command.start);
    let told = |bytes: Option<Bytes>, before: &str, after: &str| {
        bytes.map_or(String::new(), |bytes| format!("{before}{bytes}{after}  "))
    };
    let now = told(figures.resident.filter(|_| *run.state() == RunState::Running), "", " in RAM");
    let peak = told(figures.highest_resident, "peak ", "");
    let failed = told(figures.failed_resident, "failed try ", "");
    let free = run.free().map_or(String::new(), |free| format!("{} free {}", free.bytes, printable(&free.place)));
    let second = format!("{now}{peak}{failed}{free}");
    vec![Line::from(first), Line::from(second), failures(run), Line::from(printable(&command.command)).dim()]
}

/// Memory over time, of the host and of the cards where there are some.
pub(super) fn draw_charts(frame: &mut Frame<'_>, board: &Board, run: &Run, area: Rect) {
    let history = run.history();
    let last = history.moments().last().map_or(0.0, |moment| moment.time);
    let end = run.figures().time.max(last).max(1.0);
    let cards: Vec<&String> = history.names().iter().filter(|name| name.starts_with("gpu")).collect();
    let share = if cards.is_empty() { Constraint::Length(0) } else { Constraint::Fill(1) };
    let [on_cards, host] = Layout::vertical([share, Constraint::Fill(1)]).areas(area);
    let limit = run.figures().host_total.or(board.live().host_limit);
    machine::draw_history(frame, history, limit, end, host);
    if cards.is_empty() {
        return;
    }
    let curves: Vec<Vec<(f64, f64)>> = cards
        .iter()
        .map(|name| history.curve(name).map(|(time, bytes)| (time, bytes.get() as f64)).collect())
        .collect();
    let high = curves.iter().flatten().map(|(_, bytes)| *bytes).fold(1024.0, f64::max) * 1.08;
    let colours = CARD_COLOURS.iter().cycle();
    let sets = curves.iter().zip(colours).map(|(curve, colour)| set("", curve, *colour, GraphType::Line)).collect();
    frame.render_widget(chart("memory of the cards, all programs", sets, end, [0.0, high], sizes(high)), on_cards);
}

/// The end of what the command printed.
pub(super) fn draw_output(frame: &mut Frame<'_>, run: &Run, area: Rect) {
    let rows = usize::from(area.height.saturating_sub(2));
    let output = run.output();
    let shown = &output[output.len().saturating_sub(rows)..];
    let lines: Vec<Line<'static>> = shown.iter().map(|line| Line::from(printable(line))).collect();
    let block = Block::bordered().title("the end of its output").border_style(Style::new().dark_gray());
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
