//! A turn for each test: the generator and the allocator are the process's.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
