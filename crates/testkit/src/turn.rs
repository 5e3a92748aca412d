//! Turns for tests that share what is the process's.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The process for one test, until this is dropped. For tests that use what a process has one of: an allocator, a random
/// generator, a number of threads. A test that failed in its turn does not keep the others from theirs.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
