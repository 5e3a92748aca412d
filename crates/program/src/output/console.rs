//! What a person, or a program, sees of a run while it goes on.
//!
//! On a terminal: a progress bar, with what matters printed above it. Not on a terminal: a line now and then. With `--json`:
//! every event as a line on standard output. All words go to standard error. A reader that went away is no reason to
//! fail the run, so nothing here fails.

use std::io::IsTerminal;

use indicatif::ProgressBar;
use lowtide_core::{Bytes, Event, Line, Record, Step, printable};
use lowtide_settings::RunSettings;
use lowtide_train::Outcome;

use super::print::{bar, print_json, print_summary, to_stderr};
use super::run_lines::{MemoryLine, RunHeader, outcome_lines, speed};

/// Lines of steps printed over a whole run where there is no terminal, about.
const QUIET_LINES: u64 = 10;

pub(crate) struct Console {
    view: View,
    steps: u64,
    header: RunHeader,
    line: Line,
    /// Samples in a step.
    batch: u32,
    /// Whether a loss that is no finite number was told of.
    warned: bool,
    /// Steps between two lines about memory.
    log_every: Option<u64>,
    /// The step of the last evaluation.
    evaluated: Option<Step>,
}

enum View {
    Bar(ProgressBar),
    Lines,
    Json,
}

impl Console {
    pub(crate) fn new(json: bool, settings: &RunSettings, header: RunHeader) -> Console {
        let view = if json {
            View::Json
        } else if std::io::stderr().is_terminal() {
            View::Bar(bar(settings.train.steps, "{bar:30} {pos}/{len}  {msg}  {eta} left"))
        } else {
            View::Lines
        };
        Console { view, ..Console::lines(settings, header) }
    }

    /// Without a bar, whoever looks.
    pub(crate) fn lines(settings: &RunSettings, header: RunHeader) -> Console {
        Console {
            view: View::Lines,
            steps: settings.train.steps,
            header,
            line: Line::NONE,
            batch: 0,
            warned: false,
            log_every: settings.watch.log_every,
            evaluated: None,
        }
    }

    pub(crate) fn event(&mut self, record: &Record) {
        if matches!(self.view, View::Json) {
            return print_json(record);
        }
        match &record.event {
            event @ Event::RunStarted { line, resumed_at, batch, .. } => {
                self.line = *line;
                self.batch = *batch;
                self.header.lines(event).iter().for_each(|text| self.say(text));
                if let Some(step) = resumed_at {
                    self.set_position(step.get());
                }
            }
            Event::StepDone { step, loss, samples, tokens, seconds, peak, .. } => {
                let seconds = seconds.max(f64::MIN_POSITIVE);
                let speed = speed(*samples as f64 / seconds, tokens.map(|tokens| tokens as f64 / seconds));
                self.step(step.get(), &format!("loss {loss:.4}  {speed}  {}", self.memory(*peak)));
                self.look_at(step.get(), *loss);
            }
            Event::Memory { .. } if record.is_others_memory() => {}
            Event::Memory { step, allocated, reserved, device_total, host_used, host_total, .. } => {
                let room = MemoryLine::room(self.line, *device_total);
                let (step, allocated, reserved) = (*step, *allocated, *reserved);
                let line = MemoryLine { step, allocated, reserved, room, host: host_used.zip(*host_total) };
                self.say_memory(&line);
            }
            event => {
                if let Event::Evaluated { step, .. } = event {
                    self.evaluated = Some(*step);
                }
                if let Some(line) = record.log_line(self.batch) {
                    self.say(&line);
                }
            }
        }
    }

    /// Tells what came of the run. `resume` are the words that go on from there.
    pub(crate) fn end(&self, outcome: &Outcome, resume: &str) {
        match &self.view {
            View::Json => return print_summary(&outcome.summary, &outcome.folder),
            View::Bar(bar) => bar.finish_and_clear(),
            View::Lines => {}
        }
        outcome_lines(outcome, resume).iter().for_each(|line| to_stderr(line));
    }

    /// Tells of memory after an evaluation, and where the settings ask for it.
    fn say_memory(&self, line: &MemoryLine) {
        let is_asked = self.log_every.is_some_and(|every| line.step.get().is_multiple_of(every));
        if is_asked || self.evaluated == Some(line.step) {
            self.say(&line.text());
        }
    }

    /// Warns of the first loss that is no finite number. The run goes on: what to do about it is the user's decision.
    fn look_at(&mut self, step: u64, loss: f64) {
        if loss.is_finite() || self.warned {
            return;
        }
        self.warned = true;
        self.say(&format!("[step {step}] WARNING: the loss is {loss}, not a finite number; training goes on"));
        self.say(
            "hint: a lower optimizer.learning_rate, a longer optimizer.warmup_steps or train.precision=fp32 may help",
        );
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
                if step.is_multiple_of(self.steps.div_ceil(QUIET_LINES)) {
                    to_stderr(&format!("[step {step}] {text}"));
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

    /// Says something to people; with `--json` nobody is there to hear it.
    pub(crate) fn say(&self, text: &str) {
        match &self.view {
            View::Bar(bar) => bar.println(printable(text)),
            View::Lines => to_stderr(text),
            View::Json => {}
        }
    }
}
