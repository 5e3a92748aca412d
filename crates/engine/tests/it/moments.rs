//! Random moments in the life of a run.

use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::kit::Place;

/// A step of the runs here takes no longer, unless the machine is busy.
const STEP: Duration = Duration::from_millis(15);

/// How a line of `events.jsonl` that tells of a step is known.
const STEP_EVENT: &str = r#""event":"step""#;

/// A row of random moments in runs that are alike.
pub(crate) struct Moments {
    random: u64,
    turn: u32,
    steps: usize,
    /// What a run takes beside its steps, most of it before them.
    start: Duration,
}

/// A moment in the life of a run.
#[derive(Clone, Copy)]
pub(crate) enum Moment {
    /// So long after it was started.
    SinceStart(Duration),
    /// So long after a step. Counted in steps, since time alone says little of a run on a busy machine.
    SinceStep(usize, Duration),
}

impl Moments {
    /// Moments in runs like the one in `whole`, which took so long from its start to its end. The seed is not 0.
    pub(crate) fn new(seed: u64, place: &Place, whole: &str, took: Duration) -> Moments {
        let summary = place.summary(whole);
        let steps = summary["steps"].as_u64().unwrap() as usize;
        let training = Duration::from_secs_f64(summary["wall_seconds"].as_f64().unwrap());
        Moments { random: seed, turn: 0, steps, start: took.saturating_sub(training) }
    }

    /// Every fourth one is before the first step or soon after it; the others are anywhere from the first to the last.
    pub(crate) fn next(&mut self) -> Moment {
        self.turn += 1;
        if self.turn.is_multiple_of(4) {
            Moment::SinceStart(self.start.mul_f64(1.5 * self.unit()))
        } else {
            let step = 1 + (self.unit() * (self.steps - 1) as f64) as usize;
            Moment::SinceStep(step, STEP.mul_f64(self.unit()))
        }
    }

    /// So many moments for the starts of one run, each further on in it than those before.
    pub(crate) fn row(&mut self, count: usize) -> Vec<Moment> {
        let mut row: Vec<Moment> = (0..count).map(|_| self.next()).collect();
        let mut steps: Vec<usize> = row.iter().filter_map(Moment::step).collect();
        steps.sort_unstable();
        let mut steps = steps.into_iter();
        for moment in &mut row {
            if let Moment::SinceStep(step, _) = moment {
                *step = steps.next().unwrap();
            }
        }
        row
    }

    fn unit(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Moment {
    fn step(&self) -> Option<usize> {
        match self {
            Moment::SinceStart(_) => None,
            Moment::SinceStep(step, _) => Some(*step),
        }
    }

    /// Waits for it in the life of `child`, which trains into `out`.
    pub(crate) fn wait(self, child: &mut Child, place: &Place, out: &str) {
        match self {
            Moment::SinceStart(time) => sleep(time),
            Moment::SinceStep(step, time) => {
                let events = place.path(&format!("{out}/events.jsonl"));
                let is_made = || fs::read_to_string(&events).is_ok_and(|text| text.matches(STEP_EVENT).count() >= step);
                let begun = Instant::now();
                while !is_made() && child.try_wait().unwrap().is_none() && begun.elapsed().as_secs() < 60 {
                    sleep(Duration::from_micros(200));
                }
                sleep(time);
            }
        }
    }
}
