//! What `lowtide top` draws of the machine, its cards and its processes.

use std::collections::HashMap;

use lowtide_core::Bytes;
use lowtide_watch::{CHILDREN, Gauge, HOST_USED, History, Holder, MachineStatus, ProcessMonitor, RESIDENT};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, GraphType, Paragraph};

use super::chart::{chart, set, sizes};
use crate::output::printable;

const OWN: Color = Color::Green;
const ALL: Color = Color::Gray;
/// Cells of the bar of a gauge.
const BAR: usize = 10;
/// The widest name of a gauge.
const NAME: usize = 18;
/// The most lines for gauges.
const GAUGES: usize = 8;

/// How many lines the gauges take.
pub(super) fn gauge_rows(live: &MachineStatus) -> u16 {
    u16::try_from(live.gauges.len().min(GAUGES)).expect("a small number")
}

/// One line a gauge: its name, a bar, its figures.
pub(super) fn gauges(live: &MachineStatus) -> Vec<Line<'static>> {
    live.gauges.iter().take(GAUGES).map(gauge).collect()
}

fn gauge(gauge: &Gauge) -> Line<'static> {
    let share = gauge.of.filter(|of| !of.is_zero()).map(|of| gauge.used.get() as f64 / of.get() as f64);
    let bar = share.map_or(" ".repeat(BAR), |share| {
        let full = ((share * BAR as f64).round() as usize).min(BAR);
        format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
    });
    let colour = if share.is_some_and(|share| share > 0.9) { Color::Yellow } else { Color::Cyan };
    let of = gauge.of.map_or(String::new(), |of| format!(" of {of}"));
    let note = gauge.note.as_ref().map_or(String::new(), |note| format!("  {}", printable(note)));
    Line::from(vec![
        Span::from(format!("{:NAME$} ", printable(&gauge.name))),
        Span::from(bar).fg(colour),
        Span::from(format!(" {}{of}", gauge.used)),
        Span::from(note).dim(),
    ])
}

/// Who holds memory now: on the cards, then on the host.
pub(super) fn draw_holders(frame: &mut Frame<'_>, live: &MachineStatus, area: Rect) {
    let mut lines: Vec<Line<'static>> = live.on_cards.iter().chain(&live.holders).map(holder).collect();
    lines.extend(live.notes.iter().map(|note| Line::from(printable(note)).dim()));
    let block = Block::bordered().title("what holds memory now").border_style(Style::new().dark_gray());
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn holder(holder: &Holder) -> Line<'static> {
    let place = holder.card.map_or("host ".to_owned(), |card| format!("GPU {card}"));
    let name = if holder.name.is_empty() { "another container's".to_owned() } else { printable(&holder.name) };
    let used = holder.used.map_or("unknown".to_owned(), |used| used.to_string());
    let line = Line::from(format!("{place} {used:>11}  {name} {}", holder.pid));
    if holder.watched && holder.card.is_some() { line.bold() } else { line }
}

/// The memory of a process with those below it, and what is taken of the host, over time.
pub(super) fn draw_history(frame: &mut Frame<'_>, history: &History, limit: Option<Bytes>, end: f64, area: Rect) {
    let curve = |name: &str| history.curve(name).map(|(time, bytes)| (time, bytes.get() as f64)).collect::<Vec<_>>();
    let own = with_children(history);
    let used = curve(HOST_USED);
    let most = own.iter().chain(&used).map(|(_, bytes)| *bytes).fold(1024.0, f64::max);
    let limit = limit.map(|limit| limit.get() as f64).filter(|limit| *limit < 2.5 * most);
    let high = most.max(limit.unwrap_or(0.0)) * 1.08;
    let limit: Vec<(f64, f64)> = limit.map_or(Vec::new(), |limit| vec![(0.0, limit), (end, limit)]);
    let sets = vec![
        set("all", &used, ALL, GraphType::Line),
        set("own", &own, OWN, GraphType::Line),
        set("limit", &limit, Color::Red, GraphType::Line),
    ];
    let title = Line::from(vec![
        Span::from("host memory: "),
        Span::from("this process").fg(OWN),
        Span::from(", "),
        Span::from("all").fg(ALL),
    ]);
    frame.render_widget(chart(title, sets, end, [0.0, high], sizes(high)), area);
}

/// What a run notes of itself says nothing of children.
fn with_children(history: &History) -> Vec<(f64, f64)> {
    let below: HashMap<u64, Bytes> = history.curve(CHILDREN).map(|(time, bytes)| (time.to_bits(), bytes)).collect();
    let sum = |time: f64, own: Bytes| own.saturating_add(below.get(&time.to_bits()).copied().unwrap_or_default());
    history.curve(RESIDENT).map(|(time, own)| (time, sum(time, own).get() as f64)).collect()
}

/// A process that is watched for itself, in two lines.
pub(super) fn process_lines(monitor: &ProcessMonitor) -> Vec<Line<'static>> {
    let row = monitor.row();
    let told = |bytes: Option<Bytes>| bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    let free = row.free.map_or(String::new(), |free| format!("  {} free {}", free.bytes, printable(&free.place)));
    let first = format!("{} in RAM with its children, peak {} without{free}", told(row.resident), told(row.peak));
    let cards = row.on_cards.map(|peak| Line::from(format!("{} on cards, peak {peak}", told(row.on_cards_now))));
    [Some(Line::from(first).fg(OWN)), cards].into_iter().flatten().collect()
}
