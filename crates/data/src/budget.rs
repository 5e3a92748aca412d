//! One budget of bytes for everything that is held of the data: cached, being read, decoded and queued.
//!
//! Separate limits for each of them either add up to more than the line or leave room unused. Here whoever wants to
//! hold bytes reserves them first, and gives them back by dropping the [`Reservation`].
//!
//! Those who wait are served in the order in which they came, also where a later one asks for less: a large request
//! is never starved by small ones. A thread that waits while it holds bytes can wait for ever, as with any lock;
//! reserve the most that a piece of work will need at once, then [`Reservation::shrink_to`] what is left of it, or
//! [`Reservation::split`] it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lowtide_core::Bytes;
use thiserror::Error as ThisError;

/// Why no bytes were reserved.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The request is larger than the whole budget: waiting would never end.
    #[error("{asked} are needed at once, and the data budget is {budget}: give it at least {asked}")]
    TooLarge {
        /// What was asked for, which is the least budget that works.
        asked: Bytes,
        /// The whole budget.
        budget: Bytes,
    },
    /// The wait was ended by [`Stop::raise`].
    #[error("stopped while waiting for {asked} of the data budget")]
    Stopped {
        /// What was asked for.
        asked: Bytes,
    },
}

/// A number of bytes that may be held at once, shared by all that hold some. Cloning gives another handle on the same
/// budget.
#[derive(Debug, Clone)]
pub struct Budget {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    limit: Bytes,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    used: Bytes,
    peak: Bytes,
    /// Tickets of those who wait, first come first.
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

impl Budget {
    /// A budget of `limit` bytes, none of them reserved.
    pub fn new(limit: Bytes) -> Self {
        let state = State { used: Bytes::ZERO, peak: Bytes::ZERO, waiting: VecDeque::new(), next_ticket: 0 };
        Self { pool: Arc::new(Pool { limit, state: Mutex::new(state), changed: Condvar::new() }) }
    }

    /// Reserves `bytes` now, or not at all. Does not overtake those who wait.
    pub fn try_reserve(&self, bytes: Bytes) -> Option<Reservation> {
        let mut state = self.pool.lock();
        if !state.waiting.is_empty() || !state.take(bytes, self.pool.limit) {
            return None;
        }
        Some(self.reservation(bytes))
    }

    /// Reserves `bytes`, waiting for room and for those who came before.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] at once where the whole budget is smaller; [`Error::Stopped`] where `stop` is raised
    /// before or while waiting.
    pub fn reserve(&self, bytes: Bytes, stop: &Stop) -> Result<Reservation, Error> {
        if bytes > self.pool.limit {
            return Err(Error::TooLarge { asked: bytes, budget: self.pool.limit });
        }
        // Before the lock: whoever raises the stop from here on finds this budget in its list and wakes us.
        let _entry = stop.list(&self.pool);
        let mut state = self.pool.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        loop {
            if stop.is_raised() {
                state.waiting.retain(|waiting| *waiting != ticket);
                // Whoever is first now may have been waiting for us only.
                self.pool.changed.notify_all();
                return Err(Error::Stopped { asked: bytes });
            }
            if state.waiting.front() == Some(&ticket) && state.take(bytes, self.pool.limit) {
                state.waiting.pop_front();
                // There may be room for the next one too.
                self.pool.changed.notify_all();
                return Ok(self.reservation(bytes));
            }
            state = self.pool.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What is reserved now.
    pub fn used(&self) -> Bytes {
        self.pool.lock().used
    }

    /// The most that was reserved at any time; never more than the limit.
    pub fn peak(&self) -> Bytes {
        self.pool.lock().peak
    }

    fn reservation(&self, bytes: Bytes) -> Reservation {
        Reservation { bytes, pool: Arc::clone(&self.pool) }
    }
}

impl Pool {
    /// No code panics while it holds the lock, so a poisoned one is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, bytes: Bytes) {
        if bytes.is_zero() {
            return;
        }
        let mut state = self.lock();
        state.used = state.used.saturating_sub(bytes);
        if !state.waiting.is_empty() {
            self.changed.notify_all();
        }
    }
}

impl State {
    fn take(&mut self, bytes: Bytes, limit: Bytes) -> bool {
        let Some(used) = self.used.checked_add(bytes).filter(|used| *used <= limit) else {
            return false;
        };
        self.used = used;
        self.peak = self.peak.max(used);
        true
    }
}

/// Bytes of a [`Budget`] that are held; dropping it gives them back.
#[derive(Debug)]
#[must_use = "dropped at once, it reserves nothing"]
pub struct Reservation {
    bytes: Bytes,
    pool: Arc<Pool>,
}

impl Reservation {
    /// How many bytes are held.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Gives back all but `bytes`; nothing where fewer are held.
    pub fn shrink_to(&mut self, bytes: Bytes) {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.min(bytes);
        self.pool.give_back(rest);
    }

    /// Cuts off `bytes` into a reservation of its own, or `None` where fewer are held.
    pub fn split(&mut self, bytes: Bytes) -> Option<Self> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(Self { bytes, pool: Arc::clone(&self.pool) })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.give_back(self.bytes);
    }
}

/// Ends every wait that was given it, for good. Cloning gives another handle on the same stop.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    inner: Arc<StopInner>,
}

#[derive(Debug, Default)]
struct StopInner {
    raised: AtomicBool,
    /// One entry for each wait under way.
    waits: Mutex<Vec<Arc<Pool>>>,
}

impl Stop {
    /// Ends all waits with this stop, those under way and those to come.
    pub fn raise(&self) {
        self.inner.raised.store(true, Ordering::SeqCst);
        let waits = self.waits().clone();
        for pool in waits {
            // Under the lock, so that it does not fall between somebody's look at the flag and their sleep.
            let _state = pool.lock();
            pool.changed.notify_all();
        }
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.inner.raised.load(Ordering::SeqCst)
    }

    fn list(&self, pool: &Arc<Pool>) -> WaitEntry<'_> {
        self.waits().push(Arc::clone(pool));
        WaitEntry { stop: self, pool: Arc::clone(pool) }
    }

    fn waits(&self) -> MutexGuard<'_, Vec<Arc<Pool>>> {
        self.inner.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait that is in the list of its stop.
struct WaitEntry<'a> {
    stop: &'a Stop,
    pool: Arc<Pool>,
}

impl Drop for WaitEntry<'_> {
    fn drop(&mut self) {
        let mut waits = self.stop.waits();
        if let Some(place) = waits.iter().position(|pool| Arc::ptr_eq(pool, &self.pool)) {
            waits.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_when_dropped_shrunk_or_split() {
        let budget = Budget::new(Bytes(100));
        let mut one = budget.try_reserve(Bytes(60)).unwrap();
        assert!(budget.try_reserve(Bytes(41)).is_none());
        one.shrink_to(Bytes(50));
        one.shrink_to(Bytes(70));
        assert_eq!((one.bytes(), budget.used(), budget.peak()), (Bytes(50), Bytes(50), Bytes(60)));
        let part = one.split(Bytes(20)).unwrap();
        assert!(one.split(Bytes(31)).is_none());
        drop(one);
        assert_eq!(budget.used(), Bytes(20));
        drop(part);
        assert_eq!((budget.used(), budget.peak()), (Bytes::ZERO, Bytes(60)));
    }

    #[test]
    fn what_never_fits_is_refused_with_the_least_that_works() {
        let budget = Budget::new(Bytes::from_mib(1));
        let error = budget.reserve(Bytes::from_mib(3), &Stop::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "3.00 MiB are needed at once, and the data budget is 1.00 MiB: give it at least 3.00 MiB"
        );
        assert!(budget.try_reserve(Bytes::MAX).is_none());
    }

    #[test]
    fn nothing_is_always_free_and_the_whole_can_be_had() {
        let budget = Budget::new(Bytes(10));
        let whole = budget.reserve(Bytes(10), &Stop::default()).unwrap();
        let nothing = budget.try_reserve(Bytes::ZERO).unwrap();
        assert_eq!((budget.used(), whole.bytes(), nothing.bytes()), (Bytes(10), Bytes(10), Bytes::ZERO));
    }

    #[test]
    fn a_raised_stop_ends_waits_before_they_begin() {
        let budget = Budget::new(Bytes(10));
        let stop = Stop::default();
        stop.raise();
        assert_eq!(budget.reserve(Bytes(1), &stop).unwrap_err(), Error::Stopped { asked: Bytes(1) });
        assert!(stop.waits().is_empty());
        assert!(budget.try_reserve(Bytes(10)).is_some());
    }
}
