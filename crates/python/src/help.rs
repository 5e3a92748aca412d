//! Help from whoever waits for a batch: it copies samples beside the thread that puts the batch together.
//!
//! To copy them is most of that work, and goes as fast as one processor moves bytes. A sample lies on a desk with room for one, and
//! only while somebody watches the desk, who takes it before leaving: so nobody waits for a helper who has gone, nor does the feed
//! for the memory of a sample that nobody copies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lowtide_data::BufferedSample;
use lowtide_data::feed::{FeedSample, KeptSample};
use lowtide_tensorfile::View;

use crate::block::Gap;

/// Smaller values are copied before anybody could be asked to.
pub(crate) const WORTH_BYTES: usize = 4 << 10;

/// Where a copy lies that somebody may make.
#[derive(Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
    /// Whether somebody watches it and nothing lies there: for a quick look, for it may be over a moment later.
    is_free: AtomicBool,
    /// Whether something lies there, as quickly.
    is_taken: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Whether somebody looks at it again and again.
    is_watched: bool,
    copy: Option<Copying>,
}

/// A value of a sample, and where it goes.
struct Copying {
    sample: KeptSample<BufferedSample>,
    /// Which of the fields of the sample.
    field: usize,
    gap: Gap,
}

impl Copying {
    fn make(self) {
        if let Some((_, View::Array { bytes, .. })) = self.sample.fields().nth(self.field) {
            self.gap.fill(bytes);
        }
    }
}

impl Desk {
    /// Looks at it again and again from now on, until [`Desk::leave`].
    pub(crate) fn watch(&self) {
        self.change(|state| state.is_watched = true);
    }

    /// Makes what lies there, and looks at it no more.
    pub(crate) fn leave(&self) {
        let copy = self.change(|state| {
            state.is_watched = false;
            state.copy.take()
        });
        if let Some(copy) = copy {
            copy.make();
        }
    }

    /// Whether a copy that is put there now would be made by somebody else.
    pub(crate) fn is_free(&self) -> bool {
        self.is_free.load(Ordering::Relaxed)
    }

    /// Puts a field of a sample there. Where nobody watches it any more, the copy is made here and now.
    pub(crate) fn put(&self, sample: &FeedSample<'_, BufferedSample>, field: usize, gap: Gap) {
        let copy = Copying { sample: sample.keep(), field, gap };
        let left = self.change(|state| match state.is_watched {
            true => state.copy.replace(copy),
            false => Some(copy),
        });
        if let Some(copy) = left {
            copy.make();
        }
    }

    /// Makes the copy that lies there; whether there was one.
    pub(crate) fn make(&self) -> bool {
        if !self.is_taken.load(Ordering::Relaxed) {
            return false;
        }
        let copy = self.change(|state| state.copy.take());
        copy.map(Copying::make).is_some()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut state);
        self.is_free.store(state.is_watched && state.copy.is_none(), Ordering::Relaxed);
        self.is_taken.store(state.copy.is_some(), Ordering::Relaxed);
        changed
    }
}
