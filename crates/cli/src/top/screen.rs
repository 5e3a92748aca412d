//! What `lowtide top` draws.

use lowtide_core::{Bytes, EventKind};
use lowtide_watch::{Board, Point, ProcessMonitor, Run, RunState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, GraphType, Paragraph, Wrap};

use super::chart::{chart, set, sizes};
use super::{command_run, figures, machine};
use crate::output::printable;

/// Rows from which on the loss has a chart of its own.
const TALL: u16 = 28;
/// Columns from which on the story stands beside the chart.
const WIDE: u16 = 110;
pub(super) const IN_USE: Color = Color::Cyan;
pub(super) const RESERVED: Color = Color::Gray;
pub(super) const LIMIT: Color = Color::Red;

/// The run that is shown: the chosen one, else the last that is under way, else the last.
pub(crate) fn shown(board: &Board, chosen: Option<usize>) -> usize {
    let running = || board.runs().iter().rposition(|run| *run.state() == RunState::Running);
    chosen.or_else(running).unwrap_or(board.runs().len().saturating_sub(1))
}

/// Draws one run, or the process that is watched for itself.
pub(crate) fn draw(frame: &mut Frame<'_>, board: &Board, chosen: Option<usize>) {
    if let Some(monitor) = board.monitor() {
        draw_process(frame, board, monitor);
        return;
    }
    let at = shown(board, chosen);
    let Some(run) = board.runs().get(at) else {
        frame.render_widget(Paragraph::new("No run is here yet. q ends this."), frame.area());
        return;
    };
    let [title, words, live, body, keys] = rows(frame.area(), figures::LINES, board);
    frame.render_widget(figures::heading(run, at, board.runs().len()), title);
    let lines = run.command().map_or_else(|| figures::figure_lines(run), |it| command_run::figure_lines(run, it));
    frame.render_widget(Paragraph::new(lines), words);
    frame.render_widget(Paragraph::new(machine::gauges(board.live())), live);
    let [charts, beside] = match body.width >= WIDE {
        true => Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(body),
        false => Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(body),
    };
    let holders = holder_rows(frame.area().height, board);
    let output = if run.command().is_some() { Constraint::Fill(2) } else { Constraint::Length(0) };
    let [story, output, holding] =
        Layout::vertical([Constraint::Fill(1), output, Constraint::Length(holders)]).areas(beside);
    draw_story(frame, run, story);
    if run.command().is_some() {
        command_run::draw_charts(frame, board, run, charts);
        command_run::draw_output(frame, run, output);
    } else {
        draw_charts(frame, board, run, charts);
    }
    if holders > 0 {
        machine::draw_holders(frame, board.live(), holding);
    }
    let keys_text = if board.runs().len() > 1 { "q ends this, arrows choose a run" } else { "q ends this" };
    frame.render_widget(Paragraph::new(keys_text).dim(), keys);
}

fn draw_process(frame: &mut Frame<'_>, board: &Board, monitor: &ProcessMonitor) {
    let lines = machine::process_lines(monitor);
    let [title, figures, live, body, keys] = rows(frame.area(), u16::try_from(lines.len()).unwrap_or(0), board);
    let (word, colour) = if monitor.has_ended() { ("ended", Color::Yellow) } else { ("running", Color::Green) };
    let name = Span::from(printable(&monitor.name())).bold();
    frame.render_widget(Line::from(vec![name, Span::from("  "), Span::from(word).fg(colour).bold()]), title);
    frame.render_widget(Paragraph::new(lines), figures);
    frame.render_widget(Paragraph::new(machine::gauges(board.live())), live);
    let [chart, holding] = match body.width >= WIDE {
        true => Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(body),
        false => Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(body),
    };
    let end = monitor.row().time.max(1.0);
    machine::draw_history(frame, monitor.history(), board.live().host_limit, end, chart);
    machine::draw_holders(frame, board.live(), holding);
    frame.render_widget(Paragraph::new("q ends this").dim(), keys);
}

/// Title, figures, gauges, the rest, keys.
fn rows(area: Rect, figures: u16, board: &Board) -> [Rect; 5] {
    Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(figures),
        Constraint::Length(machine::gauge_rows(board.live())),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area)
}

/// The rows of the list of holders beside the story; none on a low screen, or where nothing is to be listed.
fn holder_rows(height: u16, board: &Board) -> u16 {
    let live = board.live();
    let lines = live.on_cards.len() + live.holders.len() + live.notes.len();
    let is_shown = height >= TALL && lines > 0;
    if is_shown { u16::try_from(lines + 2).unwrap_or(u16::MAX).min(height / 4) } else { 0 }
}

fn draw_charts(frame: &mut Frame<'_>, board: &Board, run: &Run, area: Rect) {
    let is_tall = frame.area().height >= TALL;
    let has_history = is_tall && !run.history().moments().is_empty();
    let share = |is_shown: bool| if is_shown { Constraint::Fill(1) } else { Constraint::Length(0) };
    let [memory, host, loss] = Layout::vertical([Constraint::Fill(2), share(has_history), share(is_tall)]).areas(area);
    draw_memory(frame, run, memory);
    if has_history {
        let last = run.history().moments().last().map_or(0.0, |moment| moment.time);
        let end = run.figures().time.max(last).max(1.0);
        let limit = run.figures().host_total.or(board.live().host_limit);
        machine::draw_history(frame, run.history(), limit, end, host);
    }
    if is_tall {
        draw_loss(frame, run, loss);
    }
}

fn draw_memory(frame: &mut Frame<'_>, run: &Run, area: Rect) {
    let points = run.timeline().points();
    let end = run.figures().time.max(1.0);
    let most = |point: &Point| point.reserved.max(point.peak).max(point.line.unwrap_or_default()).get();
    let high = points.iter().map(most).max().unwrap_or(0).max(1024) as f64 * 1.08;
    let of = |value: fn(&Point) -> Option<Bytes>| -> Vec<(f64, f64)> {
        points.iter().filter_map(|point| value(point).map(|bytes| (point.time, bytes.get() as f64))).collect()
    };
    let in_use = of(|point| Some(point.peak));
    let reserved = of(|point| Some(point.reserved));
    let limit: Vec<(f64, f64)> = match points.last().and_then(|point| point.line) {
        Some(limit) => vec![(0.0, limit.get() as f64), (end, limit.get() as f64)],
        None => Vec::new(),
    };
    let marked = |kind: EventKind| -> Vec<(f64, f64)> {
        run.marks().all().iter().filter(|mark| mark.kind == kind).map(|mark| (mark.time, high * 0.985)).collect()
    };
    let [failures, rungs, cleanings] = [EventKind::OutOfMemory, EventKind::Rung, EventKind::Cleaned].map(marked);
    let sets = vec![
        set("reserved", &reserved, RESERVED, GraphType::Line),
        set("in use", &in_use, IN_USE, GraphType::Line),
        set("limit", &limit, LIMIT, GraphType::Line),
        set("", &cleanings, Color::Green, GraphType::Scatter).marker(Marker::Dot),
        set("", &rungs, Color::Yellow, GraphType::Scatter).marker(Marker::Dot),
        set("", &failures, Color::LightRed, GraphType::Scatter).marker(Marker::Block),
    ];
    frame.render_widget(chart("memory", sets, end, [0.0, high], sizes(high)), area);
}

fn draw_loss(frame: &mut Frame<'_>, run: &Run, area: Rect) {
    let end = run.figures().time.max(1.0);
    let finite = run.timeline().points().iter().filter(|point| point.loss.is_finite());
    let losses: Vec<(f64, f64)> = finite.map(|point| (point.time, point.loss)).collect();
    let evaluations: Vec<(f64, f64)> =
        run.marks().all().iter().filter_map(|mark| mark.loss.map(|loss| (mark.time, loss))).collect();
    let all = losses.iter().chain(&evaluations).map(|(_, loss)| *loss);
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), loss| (low.min(loss), high.max(loss)));
    let (low, high) = if low < high { (low, high) } else { (0.0, 1.0) };
    let sets = vec![
        set("loss", &losses, IN_USE, GraphType::Line),
        set("evaluation", &evaluations, Color::Magenta, GraphType::Scatter).marker(Marker::Dot),
    ];
    let labels = [low, high].map(|loss| format!("{loss:.3}"));
    frame.render_widget(chart("loss", sets, end, [low, high], labels), area);
}

/// The newest events, the newest first.
fn draw_story(frame: &mut Frame<'_>, run: &Run, area: Rect) {
    let marks = run.marks().all().iter().rev().take(usize::from(area.height));
    let mut lines: Vec<Line<'static>> = Vec::new();
    if matches!(run.state(), RunState::Gone { .. }) {
        lines.push(Line::from(run.state().text()).fg(Color::Red));
    }
    lines.extend(marks.map(|mark| {
        let colour = match mark.kind {
            EventKind::OutOfMemory | EventKind::EvaluationFailed => Color::LightRed,
            EventKind::Overflowed | EventKind::Rung | EventKind::Skipped => Color::Yellow,
            EventKind::Cleaned => Color::Green,
            EventKind::Evaluated => Color::Magenta,
            _ => Color::Gray,
        };
        Line::from(vec![Span::from("● ").fg(colour), Span::from(printable(&mark.sentence()))])
    }));
    let block = Block::bordered().title("what happened").border_style(Style::new().dark_gray());
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), area);
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use lowtide_core::{Event, Line as MemoryLine, MicroBatch, Phase, Record, Step};
    use lowtide_sensors::{Detail, Sample};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn write(folder: &Path) {
        let record = |time, event| serde_json::to_string(&Record::new(time, event)).unwrap() + "\n";
        let micro_batch = MicroBatch::new(16).unwrap();
        let started = Event::RunStarted {
            workload: "gpt".to_owned(),
            device: "cpu".to_owned(),
            seed: 1,
            batch: 32,
            micro_batch,
            line: MemoryLine::at(Bytes::from_mib(64)).unwrap(),
            host_line: MemoryLine::NONE,
            parameters: 805_632,
            resumed_at: None,
            numerics: None,
        };
        let step = |step: u64| Event::StepDone {
            step: Step(step),
            loss: 2.0 / step as f64,
            learning_rate: 0.001,
            samples: 32,
            tokens: Some(2048),
            seconds: 0.5,
            allocated: Bytes::from_mib(10),
            peak: Bytes::from_mib(30 + step),
            reserved: Bytes::from_mib(50),
            micro_batch,
        };
        let failure = Event::OutOfMemory {
            step: Step(4),
            phase: Phase::Backward,
            requested: Some(Bytes::from_mib(4)),
            limit: None,
            allocated: None,
            peak: Some(Bytes::from_mib(61)),
            reserved: Some(Bytes::from_mib(63)),
            message: String::new(),
        };
        let stopped = Event::Stopped { step: Step(9), ending: lowtide_core::Ending::Finished };
        let mut text = record(0.0, started);
        for number in 1..=9 {
            if number == 4 {
                text += &record(1.9, failure.clone());
            }
            text += &record(number as f64 * 0.5, step(number));
        }
        text += &record(4.6, stopped);
        std::fs::write(folder.join("events.jsonl"), text).unwrap();
    }

    /// A process with eight workers on a machine with one card, in a group of 32 GiB; `process` is what is told of it.
    fn sample(process: &str) -> Sample {
        let text = r#"{"time": 0, "gpus": {"cards": [{"index": 0, "name": "Made Up 9000", "uuid": "GPU-0",
            "memory": {"total_bytes": 51539607552, "used_bytes": 47244640256, "free_bytes": 0, "driver_bytes": 0},
            "utilisation_percent": 87, "temperature_celsius": 64}]}, "process": PROCESS,
            "children": {"processes": 8, "resident_bytes": 2147483648},
            "machine": {"total_bytes": 68719476736, "available_bytes": 42949672960, "swap_total_bytes": 0,
                "swap_used_bytes": 0, "pressure": {"missing": "absent", "detail": ""}},
            "cgroup": {"version": "v2", "path": "/job", "limit_bytes": 34359738368, "limited_by": "/job",
                "used_bytes": 21474836480, "left_bytes": 12884901888}}"#;
        serde_json::from_str(&text.replace("PROCESS", process)).unwrap()
    }

    fn held(pid: u32) -> String {
        format!(
            r#"{{"pid": {pid}, "parent": 1, "name": "python3", "resident_bytes": 6442450944,
                "peak_bytes": 9663676416, "swap_bytes": 0}}"#
        )
    }

    fn detail(pid: u32) -> Detail {
        let process = held(pid).replace('}', r#", "proportional_bytes": 5368709120}"#);
        let text = r#"{"time": 0, "processes": [PROCESS], "cards": [{"index": 0, "processes": [
            {"pid": PID, "name": "python3", "memory_bytes": 32212254720, "watched": true, "of": PID},
            {"pid": 77, "name": {"missing": "absent", "detail": ""}, "memory_bytes": 15032385536, "watched": false}]}],
            "cgroup_inactive_file_bytes": 0}"#;
        serde_json::from_str(&text.replace("PROCESS", &process).replace("PID", &pid.to_string())).unwrap()
    }

    fn screen(board: &Board, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, board, None)).unwrap();
        terminal.backend().to_string()
    }

    fn drawn(columns: u16, rows: u16) -> String {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("mine");
        std::fs::create_dir(&run).unwrap();
        write(&run);
        let mut board = Board::open(&[run]).unwrap();
        board.catch_up(SystemTime::now()).unwrap();
        screen(&board, columns, rows)
    }

    /// A process that is watched for 90 seconds and ends, or not.
    fn process(columns: u16, rows: u16, end: &str) -> String {
        let begun = SystemTime::UNIX_EPOCH;
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut board = Board::of_process(10, begun);
        for seconds in 1..=90 {
            board.add(at(seconds), sample(&held(10)), (seconds == 1).then(|| detail(10)));
        }
        if !end.is_empty() {
            board.add(at(91), sample(end), None);
        }
        screen(&board, columns, rows)
    }

    #[test]
    fn a_process() {
        insta::assert_snapshot!(process(120, 24, ""));
        insta::assert_snapshot!(process(60, 24, r#"{"missing": "ended", "detail": "process 10 is not there"}"#));
        for (columns, rows) in [(1, 1), (5, 3), (20, 4), (300, 2), (3, 100)] {
            process(columns, rows, "");
        }
    }

    #[test]
    fn a_run_under_way_with_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        std::fs::write(folder.path().join("config.yaml"), "workload: gpt\ntrain:\n  steps: 49\n").unwrap();
        let path = folder.path().join("events.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        // Without its end.
        std::fs::write(&path, &text[..text.trim_end().rfind('\n').unwrap() + 1]).unwrap();
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.lock().unwrap();
        let mut board = Board::open(&[folder.path().to_owned()]).unwrap();
        let now = SystemTime::now();
        board.catch_up(now).unwrap();
        let me = std::process::id();
        assert_eq!(board.processes(), [me]);
        board.add(now, sample(&held(me)), Some(detail(me)));
        for (columns, rows) in [(140, 50), (60, 40), (60, 20)] {
            let shown = screen(&board, columns, rows);
            assert!(shown.contains("GPU 0") && shown.contains("limit of its group"), "{shown}");
            // Forty steps of half a second.
            assert!(shown.contains("about 20 s left") && shown.contains("failed try 63.00 MiB"), "{shown}");
            assert_eq!(shown.contains("what holds memory now"), rows >= TALL, "{shown}");
            assert_eq!(shown.contains("host memory"), rows >= TALL, "{shown}");
        }
    }

    #[test]
    fn narrow() {
        insta::assert_snapshot!(drawn(60, 24));
    }

    #[test]
    fn wide() {
        insta::assert_snapshot!(drawn(200, 40));
    }

    #[test]
    fn no_size_is_too_small() {
        for (columns, rows) in [(1, 1), (5, 3), (20, 4), (300, 2), (3, 100)] {
            drawn(columns, rows);
        }
    }
}
