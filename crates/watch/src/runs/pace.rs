//! How fast a run is now, and how long it has still to go.

use std::collections::VecDeque;

use serde::Serialize;

/// The events of steps that the speed is told from.
const WINDOW: usize = 32;
/// Fewer say nothing: the first step of a start is a slow one.
const LEAST: usize = 3;

/// How long a run has still to go.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeLeft {
    /// In seconds, as far as the speed of the last steps tells.
    pub seconds: f64,
    /// The same as people say it: `about 12 min`.
    pub text: String,
}

impl TimeLeft {
    fn of(seconds: f64) -> TimeLeft {
        TimeLeft { seconds, text: about(seconds) }
    }
}

/// The seconds of the last steps, and of what comes between steps.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Seconds a step.
    recent: VecDeque<f64>,
    step: u64,
    micro_batch: u32,
    evaluations: Pause,
    checkpoints: Pause,
}

/// Something that comes every so many steps and takes time.
#[derive(Debug, Default)]
struct Pause {
    /// The step it came after last.
    step: u64,
    /// The steps between the last two.
    every: u64,
    seconds: f64,
}

impl Pause {
    fn note(&mut self, step: u64, seconds: f64) {
        if step > self.step {
            *self = Pause { step, every: step - self.step, seconds: seconds.max(0.0) };
        }
    }

    /// What it adds to each step.
    fn share(&self) -> f64 {
        if self.every == 0 { 0.0 } else { self.seconds / self.every as f64 }
    }
}

impl Pace {
    /// The run began, or went on from a step: the speed may be another.
    pub(crate) fn start(&mut self, step: u64) {
        self.recent.clear();
        self.step = step;
    }

    /// A step was done, or several that one event stands for.
    pub(crate) fn step(&mut self, step: u64, seconds: f64, micro_batch: u32) {
        if micro_batch != self.micro_batch {
            // What was measured belongs to another size of work.
            self.recent.clear();
            self.micro_batch = micro_batch;
        }
        let steps = step.saturating_sub(self.step).max(1);
        self.step = step;
        if seconds.is_finite() && seconds >= 0.0 {
            self.recent.push_back(seconds / steps as f64);
        }
        if self.recent.len() > WINDOW {
            self.recent.pop_front();
        }
    }

    pub(crate) fn evaluation(&mut self, step: u64, seconds: f64) {
        self.evaluations.note(step, seconds);
    }

    pub(crate) fn checkpoint(&mut self, step: u64, seconds: f64) {
        self.checkpoints.note(step, seconds);
    }

    /// The time until so many steps are done; none where nothing is left, or where too few steps were seen.
    pub(crate) fn until(&self, steps: u64) -> Option<TimeLeft> {
        let left = steps.checked_sub(self.step).filter(|left| *left > 0)?;
        let each = self.seconds_per_step()? + self.evaluations.share() + self.checkpoints.share();
        Some(TimeLeft::of(left as f64 * each))
    }

    /// The mean of the last steps without the slowest and the fastest eighth: a first step and a retry say nothing of those
    /// to come.
    fn seconds_per_step(&self) -> Option<f64> {
        let mut times: Vec<f64> = self.recent.iter().copied().collect();
        if times.len() < LEAST {
            return None;
        }
        times.sort_by(f64::total_cmp);
        let usual = &times[times.len() / 8..times.len() - times.len().div_ceil(8)];
        Some(usual.iter().sum::<f64>() / usual.len() as f64)
    }
}

/// A time that is not known better, as people say it.
fn about(seconds: f64) -> String {
    // Beyond 2^64 a time is shown as that.
    let seconds = seconds.max(0.0).round() as u64;
    let rounded = |value: u64, to: u64| value.saturating_add(to / 2) / to * to;
    match seconds {
        0..90 => format!("about {} s", rounded(seconds, 5).max(5)),
        90..5400 => format!("about {} min", rounded(seconds, 60) / 60),
        5400..36_000 => {
            let minutes = rounded(seconds / 60, 10);
            match minutes % 60 {
                0 => format!("about {} h", minutes / 60),
                rest => format!("about {} h {rest} min", minutes / 60),
            }
        }
        36_000..172_800 => format!("about {} h", rounded(seconds, 3600) / 3600),
        _ => format!("about {} days", rounded(seconds, 86_400) / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(pace: &mut Pace, numbers: impl Iterator<Item = u64>, seconds: f64) {
        numbers.for_each(|step| pace.step(step, seconds, 8));
    }

    fn left(pace: &Pace, steps: u64) -> Option<f64> {
        pace.until(steps).map(|left| (left.seconds * 100.0).round() / 100.0)
    }

    #[test]
    fn nothing_is_said_before_it_can_be_known() {
        let mut pace = Pace::default();
        assert_eq!(pace.until(100), None);
        steps(&mut pace, 1..=2, 1.0);
        assert_eq!(pace.until(100), None);
        steps(&mut pace, 3..=3, 1.0);
        assert_eq!(left(&pace, 100), Some(97.0));
        assert_eq!((pace.until(3), pace.until(2)), (None, None));
    }

    #[test]
    fn the_recent_speed_counts_and_one_slow_step_does_not() {
        let mut pace = Pace::default();
        steps(&mut pace, 1..=1, 60.0);
        steps(&mut pace, 2..=3, 0.5);
        assert_eq!(left(&pace, 103), Some(50.0), "the first step compiled kernels");
        steps(&mut pace, 4..=100, 0.5);
        steps(&mut pace, 101..=140, 2.0);
        assert_eq!(left(&pace, 240), Some(200.0), "not the mean of the whole run");
        steps(&mut pace, 141..=141, 90.0);
        assert_eq!(left(&pace, 241), Some(200.0), "a retry");
    }

    #[test]
    fn a_start_and_another_micro_batch_begin_anew() {
        let mut pace = Pace::default();
        steps(&mut pace, 1..=20, 0.5);
        pace.step(21, 3.0, 4);
        assert_eq!(pace.until(100), None);
        (22..=24).for_each(|step| pace.step(step, 3.0, 4));
        assert_eq!(left(&pace, 34), Some(30.0));
        pace.start(10);
        assert_eq!(pace.until(100), None);
        (11..=13).for_each(|step| pace.step(step, 1.0, 4));
        assert_eq!(left(&pace, 20), Some(7.0));
    }

    #[test]
    fn evaluations_and_checkpoints_are_counted_in() {
        let mut pace = Pace::default();
        // One before the first step tells nothing of how often they come.
        pace.evaluation(0, 30.0);
        steps(&mut pace, 1..=50, 1.0);
        assert_eq!(left(&pace, 150), Some(100.0));
        pace.evaluation(50, 10.0);
        pace.checkpoint(25, 2.5);
        pace.checkpoint(50, 5.0);
        assert_eq!(left(&pace, 150), Some(100.0 + 20.0 + 20.0));
    }

    #[test]
    fn an_event_may_stand_for_several_steps() {
        let mut pace = Pace::default();
        for step in [10, 20, 30] {
            pace.step(step, 5.0, 8);
        }
        assert_eq!(left(&pace, 40), Some(5.0));
    }

    #[test]
    fn times_as_people_say_them() {
        let cases = [
            (0.0, "about 5 s"),
            (42.0, "about 40 s"),
            (89.0, "about 90 s"),
            (100.0, "about 2 min"),
            (5399.0, "about 90 min"),
            (5400.0, "about 1 h 30 min"),
            (7100.0, "about 2 h"),
            (20_000.0, "about 5 h 30 min"),
            (40_000.0, "about 11 h"),
            (700_000.0, "about 8 days"),
        ];
        for (seconds, text) in cases {
            assert_eq!(about(seconds), text);
        }
    }
}
