//! How far writing is: a bar on a terminal, a line now and then elsewhere, nothing for programs.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::to_stderr;

/// Lines printed over all where there is no terminal.
const QUIET_LINES: u64 = 5;

/// Shared by all threads.
pub(super) struct WriteProgress {
    view: View,
    samples: u64,
    done: AtomicU64,
}

enum View {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl WriteProgress {
    pub(super) fn new(samples: u64, json: bool) -> WriteProgress {
        let view = match (json, std::io::stderr().is_terminal()) {
            (true, _) => View::Nothing,
            (false, true) => View::Bar(bar(samples)),
            (false, false) => View::Lines,
        };
        WriteProgress { view, samples, done: AtomicU64::new(0) }
    }

    /// So many more samples are written.
    pub(super) fn add(&self, samples: u64) {
        let before = self.done.fetch_add(samples, Ordering::Relaxed);
        let after = before + samples;
        let lines = |done: u64| u128::from(done) * u128::from(QUIET_LINES) / u128::from(self.samples);
        match &self.view {
            View::Bar(bar) => bar.set_position(after),
            View::Lines if lines(before) < lines(after) && after < self.samples => {
                to_stderr(&format!("{after} of {} samples", self.samples));
            }
            View::Lines | View::Nothing => {}
        }
    }

    pub(super) fn end(&self) {
        if let View::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
    }
}

fn bar(samples: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} samples  {per_sec}  {eta} left");
    let bar = ProgressBar::with_draw_target(Some(samples), ProgressDrawTarget::stderr_with_hz(10));
    bar.with_style(style.expect("the template is right"))
}
