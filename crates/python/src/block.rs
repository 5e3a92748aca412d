//! Memory of batches: filled from its beginning on, then handed out as a tensor of somebody else's.
//!
//! What its `unsafe` relies on: a [`Block`] owns its memory, and is written to only through `&mut self`, while nobody else can
//! see it, or through the [`Gap`]s that it gave away, each of which has bytes of its own. As long as there is a gap, the memory is
//! neither moved nor given back nor shown to anybody.

#![expect(
    unsafe_code,
    reason = "what a tensor of Python's holds is a pointer, and its memory is not zeroed before it is filled"
)]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{hint, thread};

use pyo3::prelude::*;

use crate::failure::Failure;

/// What every block begins at a multiple of: a cache line, and the widest vectors of a processor.
const ALIGN: usize = 64;

/// Bytes of all blocks that are alive.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Bytes that tensors from here hold.
#[pyfunction]
pub(crate) fn held_bytes() -> u64 {
    HELD.load(Ordering::Relaxed)
}

/// An allocation.
#[derive(Debug)]
struct Room {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory as a `Vec` does, and gives access to it only through `&mut self`.
unsafe impl Send for Room {}
// SAFETY: nothing is read or written through `&Room`.
unsafe impl Sync for Room {}

impl Room {
    fn of(bytes: usize, take: unsafe fn(Layout) -> *mut u8) -> Result<Self, Failure> {
        let no_memory = || Failure::NoMemory(bytes as u64);
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).map_err(|_| no_memory())?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { take(layout) }).ok_or_else(no_memory)?;
        Ok(Self { start, layout })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this layout, and nobody else frees it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Rooms of batches that are gone, for those to come: fresh memory of this size comes page by page from the kernel, which
/// takes as long as filling it.
static SPARE: Mutex<Vec<Room>> = Mutex::new(Vec::new());
/// A batch that is used, one that waits, and one that is being put together.
const SPARE_ROOMS: usize = 3;
/// Smaller ones come quickly from wherever `alloc` has them.
const SPARE_BYTES: usize = 128 << 10;

fn spare() -> MutexGuard<'static, Vec<Room>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives back what is kept for batches to come.
pub(crate) fn drop_spare() {
    spare().clear();
}

/// Memory that is filled from its beginning on.
#[derive(Debug)]
pub(crate) struct Block {
    /// Always there until the block is dropped.
    room: ManuallyDrop<Room>,
    filled: usize,
    /// Gaps that are not filled yet.
    gaps: Arc<AtomicUsize>,
}

impl Block {
    /// Room for so many bytes.
    pub(crate) fn with_room(bytes: usize) -> Result<Self, Failure> {
        let mut rooms = spare();
        if let Some(at) = rooms.iter().rposition(|room| room.layout.size() == bytes) {
            return Ok(Self::of(rooms.swap_remove(at)));
        }
        drop(rooms);
        Ok(Self::of(Room::of(bytes, alloc)?))
    }

    /// So many zeros, which `fill` replaces.
    pub(crate) fn filled_by(
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let mut block = Self::of(Room::of(bytes, alloc_zeroed)?);
        block.filled = bytes;
        // SAFETY: all of it was allocated as zeros, and `block` is not shared yet.
        let whole = unsafe { std::slice::from_raw_parts_mut(block.room.start.as_ptr(), bytes) };
        fill(whole)?;
        Ok(block)
    }

    fn of(room: Room) -> Self {
        HELD.fetch_add(room.layout.size() as u64, Ordering::Relaxed);
        Self { room: ManuallyDrop::new(room), filled: 0, gaps: Arc::default() }
    }

    /// Where it begins, once all of it is there. Nobody writes there while somebody else can see it.
    pub(crate) fn address(&self) -> *mut u8 {
        self.wait();
        self.room.start.as_ptr()
    }

    /// Bytes that are in it.
    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// Adds bytes behind those that are there; where there is no room, into twice as much.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let end = self.filled.saturating_add(bytes.len());
        if end > self.room.layout.size() {
            self.wait();
            let mut larger = Self::with_room(end.max(self.room.layout.size().saturating_mul(2)))?;
            // SAFETY: `filled` bytes were written here, as many fit there, and these are two allocations.
            unsafe { ptr::copy_nonoverlapping(self.room.start.as_ptr(), larger.room.start.as_ptr(), self.filled) };
            larger.filled = self.filled;
            *self = larger;
        }
        // SAFETY: there is room up to `end`, and `bytes` cannot lie in memory that only `self` has.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.room.start.as_ptr().add(self.filled), bytes.len()) };
        self.filled = end;
        Ok(())
    }

    /// The next so many bytes, for somebody else to fill; `None` where there is no room for them.
    pub(crate) fn gap(&mut self, bytes: usize) -> Option<Gap> {
        let end = self.filled.checked_add(bytes).filter(|end| *end <= self.room.layout.size())?;
        // SAFETY: there is room up to `end`.
        let start = unsafe { self.room.start.add(self.filled) };
        self.filled = end;
        self.gaps.fetch_add(1, Ordering::Relaxed);
        Some(Gap { start, length: bytes, gaps: Arc::clone(&self.gaps) })
    }

    /// Waits until all gaps are filled: for as long as a copy takes that somebody else has begun.
    fn wait(&self) {
        let mut turns: u32 = 0;
        // What was written to a gap is to be seen behind this.
        while self.gaps.load(Ordering::Acquire) > 0 {
            turns += 1;
            if turns.is_multiple_of(64) { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}

/// Bytes of a block that somebody else fills.
#[derive(Debug)]
pub(crate) struct Gap {
    start: NonNull<u8>,
    length: usize,
    gaps: Arc<AtomicUsize>,
}

// SAFETY: nobody else reads or writes these bytes while it is there.
unsafe impl Send for Gap {}

impl Gap {
    /// Fills it. What is too much is left out, and what is missing becomes zero.
    pub(crate) fn fill(mut self, bytes: &[u8]) {
        let length = bytes.len().min(self.length);
        // SAFETY: the block is there as long as its gap is, has `self.length` bytes here that nobody else uses, and `bytes` cannot
        // lie in them.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr(), length);
            self.start = self.start.add(length);
        }
        self.length -= length;
    }
}

impl Drop for Gap {
    fn drop(&mut self) {
        // SAFETY: as in `fill`. What nobody has written is not to be seen.
        unsafe { ptr::write_bytes(self.start.as_ptr(), 0, self.length) };
        self.gaps.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.wait();
        // SAFETY: nobody uses the room of a block that is being dropped.
        let room = unsafe { ManuallyDrop::take(&mut self.room) };
        HELD.fetch_sub(room.layout.size() as u64, Ordering::Relaxed);
        if room.layout.size() < SPARE_BYTES {
            return;
        }
        let mut rooms = spare();
        rooms.push(room);
        // Those that fit nobody any more are the oldest.
        let surplus = (rooms.len() > SPARE_ROOMS).then(|| rooms.remove(0));
        drop(rooms);
        drop(surplus);
    }
}
