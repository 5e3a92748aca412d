//! Host memory that torch's allocator falls back on: the two functions of C that it asks for it, and marks by which its use is
//! seen.
//!
//! Python pins the memory beforehand (torch holds its lock while it calls these functions, and pinning takes seconds), so the
//! functions only look for a region of the right size. **Marks**: torch counts nothing when it falls back on a pool, and calls
//! nobody. But it takes memory from the beginning of a free block, and whoever asked for it writes to it; so each free block
//! gets a number at its beginning, and one in every [`SPACING`] bytes. A number that is another one afterwards has been
//! written over, also by a block that lived for a millisecond. Looking at the first ones is a read of host memory a block.

#![expect(
    unsafe_code,
    reason = "torch asks functions of C for memory, and the GPU writes to it behind everybody's back"
)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Bytes between two marks. Blocks of more than 1 MiB are all that a pool without small segments serves, so none fits in between.
const SPACING: usize = 512 << 10;
/// How often a waiting thread looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What torch may be given.
static REGIONS: Mutex<Vec<Region>> = Mutex::new(Vec::new());

/// A piece of pinned memory of the host.
#[derive(Debug)]
struct Region {
    start: usize,
    bytes: usize,
    device: c_int,
    is_taken: bool,
}

fn regions() -> MutexGuard<'static, Vec<Region>> {
    // Nothing panics while it is held, and a list of numbers is never half-changed.
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What torch calls for a segment of a pool: a region of exactly this size for this device, or null.
// SAFETY: no other symbol of this name is in the process: it is prefixed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn lowtide_reserve_take(bytes: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    let mut regions = regions();
    let fits = |region: &&mut Region| !region.is_taken && region.device == device && region.bytes as isize == bytes;
    let Some(region) = regions.iter_mut().find(fits) else {
        return ptr::null_mut();
    };
    region.is_taken = true;
    ptr::with_exposed_provenance_mut(region.start)
}

/// What torch calls when it gives a segment back.
// SAFETY: no other symbol of this name is in the process: it is prefixed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn lowtide_reserve_give_back(
    start: *mut c_void,
    _bytes: isize,
    _device: c_int,
    _stream: *mut c_void,
) {
    if let Some(region) = regions().iter_mut().find(|region| region.start == start.addr()) {
        region.is_taken = false;
    }
}

/// Memory that torch may be given, and the marks in it. Whoever makes it keeps the memory until it is gone.
#[pyclass(module = "lowtide._native", frozen)]
#[derive(Debug)]
pub(crate) struct HostRegion {
    start: usize,
    bytes: usize,
    /// Free blocks in which marks were set: where they begin, and how long they are.
    marked: Mutex<Vec<(usize, usize)>>,
    is_closed: AtomicBool,
}

#[pymethods]
impl HostRegion {
    /// Pinned memory at an address, for a device, which torch gets in pieces of these sizes.
    #[new]
    fn new(address: usize, pieces: Vec<usize>, device: c_int) -> PyResult<Self> {
        let end = pieces.iter().try_fold(address, |end, bytes| end.checked_add(*bytes));
        let end = end.filter(|end| *end <= isize::MAX as usize);
        let is_aligned = |number: usize| number != 0 && number.is_multiple_of(512);
        let (true, Some(end)) = (is_aligned(address) && pieces.iter().all(|bytes| is_aligned(*bytes)), end) else {
            return Err(PyValueError::new_err("no region of memory"));
        };
        let bytes = end - address;
        let mut start = address;
        for piece in pieces {
            regions().push(Region { start, bytes: piece, device, is_taken: false });
            start += piece;
        }
        Ok(Self { start: address, bytes, marked: Mutex::new(Vec::new()), is_closed: AtomicBool::new(false) })
    }

    /// Whether torch has it.
    #[getter]
    fn is_taken(&self) -> bool {
        regions().iter().any(|region| self.holds(region.start) && region.is_taken)
    }

    /// Whether an address lies in it.
    fn holds(&self, address: usize) -> bool {
        (self.start..self.start + self.bytes).contains(&address)
    }

    /// Sets marks in these blocks, each an address and a size, and forgets those set before. Nobody else may use the blocks
    /// meanwhile, nor may the GPU still work on what was in them.
    fn mark(&self, blocks: Vec<(usize, usize)>) -> PyResult<()> {
        let is_inside = |(start, bytes): &(usize, usize)| {
            *start >= self.start && start.checked_add(*bytes).is_some_and(|end| end <= self.start + self.bytes)
        };
        if self.is_closed()
            || !blocks.iter().all(is_inside)
            || !blocks.iter().all(|(start, _)| start.is_multiple_of(512))
        {
            return Err(PyValueError::new_err("marks outside of the region"));
        }
        let blocks: Vec<_> = blocks.into_iter().filter(|(_, bytes)| *bytes >= size_of::<u64>()).collect();
        for place in blocks.iter().flat_map(places) {
            self.at(place).store(mark_of(place), Ordering::Relaxed);
        }
        *self.blocks() = blocks;
        Ok(())
    }

    /// Whether the beginning of a marked block was written over.
    fn is_touched(&self) -> bool {
        self.blocks().iter().any(|(start, _)| self.is_changed(*start))
    }

    /// Bytes around the marks that were written over.
    fn touched(&self) -> usize {
        let changed = |block: &(usize, usize)| places(block).filter(|place| self.is_changed(*place)).count();
        let touched = |block: &(usize, usize)| (changed(block) * SPACING).min(block.1);
        self.blocks().iter().map(touched).sum()
    }

    /// Waits until the beginning of a marked block is written over, at most so many seconds. Others can run meanwhile.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let until = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
        py.detach(|| {
            while !self.is_closed() && Instant::now() < until {
                if self.is_touched() {
                    return true;
                }
                std::thread::sleep(LOOK_EVERY);
            }
            false
        })
    }

    /// Takes it out of what torch may be given, and ends whoever waits. Gives whether the memory may be freed: torch has none
    /// of it.
    fn close(&self) -> bool {
        self.blocks().clear();
        self.is_closed.store(true, Ordering::Release);
        let mut regions = regions();
        let is_free = !regions.iter().any(|region| self.holds(region.start) && region.is_taken);
        // What torch still has is never lent a second time.
        regions.retain(|region| !self.holds(region.start) || region.is_taken);
        is_free
    }
}

impl HostRegion {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_changed(&self, place: usize) -> bool {
        self.at(place).load(Ordering::Relaxed) != mark_of(place)
    }

    /// The number at a place of a block that was checked to lie in the region.
    fn at(&self, place: usize) -> &AtomicU64 {
        // SAFETY: `mark` has checked that the place and the 8 bytes behind it lie in the region, which `lowtide._reserve` frees
        // only after `close` has forgotten all places; it is aligned to 512 bytes. The GPU and others write to it at any
        // time, which is why it is read and written as an atomic number.
        unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(place)) }
    }
}

/// Where the marks of a block are.
fn places(&(start, bytes): &(usize, usize)) -> impl Iterator<Item = usize> {
    (start..start + bytes - size_of::<u64>() + 1).step_by(SPACING)
}

/// A number that nobody else writes there: other at each place, and with no pattern.
fn mark_of(place: usize) -> u64 {
    let mixed = (place as u64 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) | 1
}
