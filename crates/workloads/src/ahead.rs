//! A batch that a thread makes while the one before it is computed.
//!
//! What a thread makes is plain numbers: tensors are for the loop. There is one batch at a time. It stays while the one before it is
//! tried again, and is forgotten when another is begun.

use std::cell::{OnceCell, RefCell};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// At most one batch that was begun and not yet asked for.
pub(crate) struct Ahead<T> {
    /// The thread, from the first batch on; none where it could not be started.
    thread: OnceCell<Option<Sender<Job>>>,
    begun: RefCell<Option<Begun<T>>>,
}

struct Begun<T> {
    first: u64,
    count: u32,
    made: Receiver<T>,
}

impl<T> Begun<T> {
    fn is_of(&self, first: u64, count: u32) -> bool {
        (self.first, self.count) == (first, count)
    }
}

impl<T> Default for Ahead<T> {
    fn default() -> Ahead<T> {
        Ahead { thread: OnceCell::new(), begun: RefCell::new(None) }
    }
}

impl<T: Send + 'static> Ahead<T> {
    /// Begins to make samples `first .. first + count`, unless those are begun.
    pub(crate) fn begin(&self, first: u64, count: u32, make: impl FnOnce() -> T + Send + 'static) {
        if self.begun.borrow().as_ref().is_some_and(|begun| begun.is_of(first, count)) {
            return;
        }
        let (done, made) = mpsc::sync_channel(1);
        // Nobody listens where the batch was forgotten meanwhile.
        let job: Job = Box::new(move || drop(done.send(make())));
        let thread = self.thread.get_or_init(start).as_ref();
        let is_begun = thread.is_some_and(|thread| thread.send(job).is_ok());
        *self.begun.borrow_mut() = is_begun.then_some(Begun { first, count, made });
    }

    /// What was made of these samples, once it is there; `None` where others were begun, or none.
    pub(crate) fn take(&self, first: u64, count: u32) -> Option<T> {
        let begun = self.begun.borrow_mut().take_if(|begun| begun.is_of(first, count))?;
        begun.made.recv().ok()
    }
}

/// A thread that ends when nobody can ask it for anything any more.
fn start() -> Option<Sender<Job>> {
    let (jobs, asked) = mpsc::channel::<Job>();
    let work = move || asked.into_iter().for_each(|job| job());
    thread::Builder::new().name("next-batch".to_owned()).spawn(work).ok().map(|_| jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_that_was_begun_is_given_out_once() {
        let ahead = Ahead::default();
        ahead.begin(8, 2, || thread::current().name().map(str::to_owned));
        assert_eq!(ahead.take(8, 2), Some(Some("next-batch".to_owned())));
        assert_eq!(ahead.take(8, 2), None);
    }

    #[test]
    fn another_batch_than_the_one_that_was_begun_is_not_there() {
        let ahead = Ahead::default();
        ahead.begin(8, 2, || 1);
        assert_eq!(ahead.take(8, 3), None, "another count");
        assert_eq!(ahead.take(6, 2), None, "the one before, which is tried again");
        ahead.begin(8, 2, || panic!("it is begun already"));
        assert_eq!(ahead.take(8, 2), Some(1));
        ahead.begin(8, 2, || 1);
        ahead.begin(10, 2, || 2);
        assert_eq!(ahead.take(8, 2), None, "one that was begun before");
        ahead.begin(12, 2, || 3);
        assert_eq!(ahead.take(12, 2), Some(3));
    }

    #[test]
    fn a_thread_that_panics_leaves_the_batch_to_the_loop() {
        let ahead = Ahead::default();
        ahead.begin(0, 1, || -> u32 { panic!("on purpose") });
        assert_eq!(ahead.take(0, 1), None);
        ahead.begin(1, 1, || 1);
        assert_eq!(ahead.take(1, 1), None, "there is no thread any more");
    }
}
