//! Random moments in the life of a run.

use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::kit::Place;

/// A row of random moments.
pub(crate) struct Moments {
    random: u64,
    turn: u32,
    /// What a whole run takes.
    whole: Duration,
}

/// A moment in the life of a run.
#[derive(Clone, Copy)]
pub(crate) enum Moment {
    /// So long after it was started.
    SinceStart(Duration),
    /// So long after its first step.
    SinceFirstStep(Duration),
}

impl Moments {
    /// Moments in runs that take so long. The seed is not 0.
    pub(crate) fn new(seed: u64, whole: Duration) -> Moments {
        Moments { random: seed, turn: 0, whole }
    }

    fn below(&mut self, most: Duration) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        most.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// Every third one is anywhere from the start on; the others are in the steps, which are a part of the whole.
    pub(crate) fn next(&mut self) -> Moment {
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            Moment::SinceStart(self.below(self.whole))
        } else {
            Moment::SinceFirstStep(self.below(self.whole / 3))
        }
    }
}

impl Moment {
    /// Waits for it in the life of `child`, which trains into `out`.
    pub(crate) fn wait(self, child: &mut Child, place: &Place, out: &str) {
        match self {
            Moment::SinceStart(time) => sleep(time),
            Moment::SinceFirstStep(time) => {
                let schedule = place.path(&format!("{out}/schedule.jsonl"));
                let has_step = || fs::metadata(&schedule).is_ok_and(|file| file.len() > 0);
                let begun = Instant::now();
                while !has_step() && child.try_wait().unwrap().is_none() && begun.elapsed().as_secs() < 20 {
                    sleep(Duration::from_micros(200));
                }
                sleep(time);
            }
        }
    }
}
