//! What was read, or is about to be.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::options::FeedError;
use crate::budget::Reservation;
use crate::order::SampleId;

/// Samples in memory, and the bytes of the budget that they take: both go when nobody needs them any more.
pub(super) struct Block<T> {
    pub(super) samples: Vec<T>,
    /// The place of the first of them in the shard.
    pub(super) first: u64,
    pub(super) _bytes: Reservation,
}

impl<T> Block<T> {
    pub(super) fn sample(&self, sample: SampleId) -> &T {
        &self.samples[(sample.index - self.first) as usize]
    }
}

/// A unit on its way into memory, shared by all its uses ahead.
pub(super) struct Slot<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Waiting,
    Ready(Arc<Block<T>>),
    Failed(FeedError),
}

/// The duty to fill a slot. Dropped without that, by a panic say, it leaves an error there: nobody waits for ever.
pub(super) struct Promise<T>(Arc<Slot<T>>);

impl<T> Promise<T> {
    pub(super) fn keep(self, read: Result<Block<T>, FeedError>) {
        self.0.fill(read);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if matches!(*self.0.lock(), State::Waiting) {
            self.0.fill(Err(FeedError::ThreadLost));
        }
    }
}

impl<T> Slot<T> {
    pub(super) fn promised() -> (Arc<Slot<T>>, Promise<T>) {
        let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), changed: Condvar::new() });
        (Arc::clone(&slot), Promise(slot))
    }

    fn fill(&self, read: Result<Block<T>, FeedError>) {
        *self.lock() = match read {
            Ok(block) => State::Ready(Arc::new(block)),
            Err(error) => State::Failed(error),
        };
        self.changed.notify_all();
    }

    /// The samples, and how long they were waited for.
    pub(super) fn wait(&self) -> (Result<Arc<Block<T>>, FeedError>, Duration) {
        let mut state = self.lock();
        let mut begun = None;
        loop {
            let waited = begun.map_or(Duration::ZERO, |begun: Instant| begun.elapsed());
            match &*state {
                State::Ready(block) => return (Ok(Arc::clone(block)), waited),
                State::Failed(error) => return (Err(error.clone()), waited),
                State::Waiting => {}
            }
            begun.get_or_insert_with(Instant::now);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
