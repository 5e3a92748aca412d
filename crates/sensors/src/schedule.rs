//! When a sample is due.
//!
//! Shares of memory are read seldom where that takes long. The kernel walks page tables to tell a process's share,
//! about 10 to 20 ms a GiB; `Schedule` spaces that so that it takes a two-thousandth of a core at most. Process lists
//! come every ten seconds all the same.

/// The largest share of a core that reading shares of memory may take: where it takes long, it is done seldom.
const SHARES_SHARE: f64 = 0.0005;

/// Says when a fast and when a slow sample is due, without a clock of its own.
#[derive(Debug, Clone)]
pub struct Schedule {
    fast_every: f64,
    slow_every: f64,
    next_fast: f64,
    next_slow: f64,
    next_shares: f64,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// A fast sample.
    Fast,
    /// A fast sample, and a slow one with the shares of memory that were read last.
    Lists,
    /// A fast and a slow sample.
    Both,
}

impl Schedule {
    /// All is due at once at `now`, then at the given distances in seconds.
    #[must_use]
    pub const fn new(now: f64, fast_every: f64, slow_every: f64) -> Self {
        Self { fast_every, slow_every, next_fast: now, next_slow: now, next_shares: now }
    }

    /// What is due at `now`. What was missed meanwhile, as while a machine slept, is not made up for.
    pub fn due(&mut self, now: f64) -> Due {
        // A clock that was set back must not stop the samples.
        if self.next_fast - now > self.fast_every {
            (self.next_fast, self.next_slow, self.next_shares) = (now, now, now);
        }
        if now < self.next_fast {
            return Due::Nothing;
        }
        self.next_fast += self.fast_every;
        if self.next_fast <= now {
            self.next_fast = now + self.fast_every;
        }
        if now < self.next_slow {
            return Due::Fast;
        }
        self.next_slow = now + self.slow_every;
        if now < self.next_shares { Due::Lists } else { Due::Both }
    }

    /// Tells what a slow sample with shares took, in seconds, so that a process of many gigabytes is asked seldom.
    pub const fn shares_took(&mut self, now: f64, seconds: f64) {
        self.next_shares = now + seconds / SHARES_SHARE;
    }

    /// When [`Schedule::due`] will next have something.
    pub const fn next(&self) -> f64 {
        self.next_fast
    }
}

impl Default for Schedule {
    /// Two fast samples a second and a slow one every ten seconds, from time 0 on.
    fn default() -> Self {
        Self::new(0.0, 0.5, 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, Schedule};

    fn dues(schedule: &mut Schedule, times: &[f64]) -> Vec<Due> {
        times.iter().map(|time| schedule.due(*time)).collect()
    }

    #[test]
    fn two_a_second_and_a_slow_one_every_ten() {
        let mut schedule = Schedule::default();
        let all: Vec<Due> = (0..200).map(|tenth| schedule.due(f64::from(tenth) / 10.0)).collect();
        assert_eq!(all.iter().filter(|due| **due != Due::Nothing).count(), 40);
        assert_eq!(all.iter().filter(|due| **due == Due::Both).count(), 2);
    }

    #[test]
    fn sleep_is_not_made_up_for() {
        let mut schedule = Schedule::default();
        let seen = dues(&mut schedule, &[0.0, 1000.0, 1000.1, 1000.5]);
        assert_eq!(seen, [Due::Both, Due::Both, Due::Nothing, Due::Fast]);
    }

    #[test]
    fn a_clock_set_back_stops_nothing() {
        let mut schedule = Schedule::new(1000.0, 0.5, 10.0);
        let seen = dues(&mut schedule, &[1000.0, 500.0, 500.1, 500.5]);
        assert_eq!(seen, [Due::Both, Due::Both, Due::Nothing, Due::Fast]);
    }

    #[test]
    fn shares_that_take_long_come_seldom_and_lists_as_before() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.due(0.0), Due::Both);
        schedule.shares_took(0.0, 0.05);
        let seen = dues(&mut schedule, &[9.0, 10.0, 90.0, 99.0, 101.0]);
        assert_eq!(seen, [Due::Fast, Due::Lists, Due::Lists, Due::Fast, Due::Both]);
    }
}
