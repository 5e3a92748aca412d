//! What a person, or a program, sees of a run while it goes on.
//!
//! On a terminal: a progress bar, with what matters printed above it. Not on a terminal: a line now and then. With `--json`:
//! every event as a line on standard output. All words go to standard error.

use std::io::{IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lowtide_core::{Bytes, Event, Line, Record, Rung};
use lowtide_settings::RunSettings;
use lowtide_torch::DeviceFacts;
use lowtide_torch::tch::Device;
use lowtide_train::{Outcome, Summary};

/// Lines printed over a whole run where there is no terminal.
const QUIET_LINES: u64 = 10;

pub(crate) struct Outlook {
    view: View,
    steps: u64,
    line: Line,
}

enum View {
    Bar(ProgressBar),
    Lines,
    Json,
}

impl Outlook {
    pub(crate) fn new(json: bool, steps: u64) -> Outlook {
        let view = if json {
            View::Json
        } else if std::io::stderr().is_terminal() {
            View::Bar(bar(steps))
        } else {
            View::Lines
        };
        Outlook { view, steps, line: Line::NONE }
    }

    pub(crate) fn begin(&self, facts: &DeviceFacts, settings: &RunSettings, folder: &Path) {
        if matches!(self.view, View::Json) {
            return;
        }
        let device = match facts.device {
            Device::Cuda(index) => format!("cuda:{index} {}", facts.name),
            _ => "the CPU".to_owned(),
        };
        eprintln!("training {} on {device} ({} in all, {} free)", settings.workload, facts.total, facts.free);
        if let Some(note) = &facts.note {
            eprintln!("note: the GPU is not used: {note}");
        }
        eprintln!("writing to {}", folder.display());
    }

    pub(crate) fn event(&mut self, record: &Record) {
        if matches!(self.view, View::Json) {
            print_json(record);
            return;
        }
        match &record.event {
            Event::RunStarted { line, parameters, resumed_at, batch, .. } => {
                self.line = *line;
                let drawn = line.limit().map_or("no line".to_owned(), |limit| format!("a line of {limit}"));
                self.say(&format!("{} parameters, {batch} samples a step, {drawn}", grouped(*parameters)));
                if let Some(step) = resumed_at {
                    self.say(&format!("resumed after step {step}"));
                    self.set_position(step.get());
                }
            }
            Event::StepDone { step, loss, tokens, seconds, peak, .. } => {
                let rate = tokens.unwrap_or(0) as f64 / seconds.max(f64::MIN_POSITIVE);
                self.step(
                    step.get(),
                    &format!("loss {loss:.4}  {} tokens/s  {}", grouped(rate as u64), self.memory(*peak)),
                );
            }
            Event::OutOfMemory { step, phase, requested, .. } => {
                let asked = requested.map_or(String::new(), |bytes| format!(", which asked for {bytes}"));
                self.say(&format!("[step {step}] out of memory in {phase}{asked}"));
            }
            Event::RungTaken { step, rung, measures, .. } => {
                let what = if *rung == Rung::Clean { String::new() } else { format!(": {measures}") };
                self.say(&format!("[step {step}] trying the same batch again after: {rung}{what}"));
            }
            Event::Climbed { step, measures, reason } => self.say(&format!("[step {step}] {reason}: {measures}")),
            Event::Evaluated { step, loss, .. } => self.say(&format!("[step {step}] evaluation: loss {loss:.4}")),
            Event::Skipped { step, scale } => {
                self.say(&format!("[step {step}] skipped: a gradient was not finite; the loss scale is now {scale}"));
            }
            Event::Cleaned { .. } | Event::Saved { .. } | Event::Stopped { .. } => {}
        }
    }

    pub(crate) fn end(&self, outcome: &Outcome) {
        match &self.view {
            View::Json => {
                let mut out = std::io::stdout().lock();
                let text =
                    serde_json::json!({ "event": "summary", "summary": outcome.summary, "folder": outcome.folder });
                // A reader that went away is no reason to fail a run that is saved.
                let _ = writeln!(out, "{text}");
                return;
            }
            View::Bar(bar) => bar.finish_and_clear(),
            View::Lines => {}
        }
        eprint!("{}", summary_text(&outcome.summary));
        if let Some(stop) = &outcome.stop {
            eprintln!("stopped: {stop}");
            for tried in &stop.tried {
                eprintln!("  tried: {} ({})", tried.rung, tried.measures);
            }
            eprintln!(
                "hint: raise the line or choose a smaller model, then go on with --resume --out {}",
                outcome.folder.display()
            );
        }
        eprintln!("everything about this run is in {}", outcome.folder.display());
    }

    fn memory(&self, used: Bytes) -> String {
        match self.line.limit() {
            Some(limit) => format!("memory {used} of {limit}"),
            None => format!("memory {used}"),
        }
    }

    fn step(&self, step: u64, text: &str) {
        match &self.view {
            View::Bar(bar) => {
                bar.set_position(step);
                bar.set_message(text.to_owned());
            }
            _ => {
                if step.is_multiple_of((self.steps / QUIET_LINES).max(1)) {
                    eprintln!("[step {step}] {text}");
                }
            }
        }
    }

    fn set_position(&self, step: u64) {
        if let View::Bar(bar) = &self.view {
            bar.set_position(step);
            bar.reset_eta();
        }
    }

    fn say(&self, text: &str) {
        match &self.view {
            View::Bar(bar) => bar.println(text),
            _ => eprintln!("{text}"),
        }
    }
}

fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left").expect("the template is right");
    ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
}

fn print_json(record: &Record) {
    let text = serde_json::to_string(record).expect("plain numbers and texts");
    // A reader that went away is no reason to fail the run.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// The end of a run in a few lines.
fn summary_text(summary: &Summary) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<12} {value}\n"));
    row("steps", format!("{} ({} samples, none lost)", grouped(summary.steps), grouped(summary.samples_seen)));
    if let Some(loss) = summary.final_loss {
        let floor = summary.loss_floor.map_or(String::new(), |floor| {
            format!(" (the least possible is {floor:.4}, so {:.1} % above it)", 100.0 * (loss / floor - 1.0))
        });
        row("loss", format!("{loss:.4}{floor}"));
    }
    row("speed", format!("{} tokens/s", grouped(summary.targets_per_second as u64)));
    let line = summary.line_bytes.map_or("no line".to_owned(), |line| format!("line {}", Bytes(line)));
    row("memory", format!("peak {} ({line})", Bytes(summary.peak_allocated_bytes)));
    if summary.oom_errors > 0 {
        row("out of memory", format!("{} times, {} recovered", summary.oom_errors, summary.oom_recovered));
    }
    row("time", format!("{:.1} s", summary.wall_seconds));
    format!("{}\n{text}", summary.stopped)
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_in_groups() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
