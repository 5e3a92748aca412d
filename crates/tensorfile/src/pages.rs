//! Pages of memory, and pages of files that the system holds: both are given back when they are not needed.
//!
//! For programs that read many files inside a memory limit; a program that reads one needs nothing of it. What is said
//! to the page cache is advice only: where a system does not take it, reading works as well, and the page cache grows as
//! far as it is let.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions};

/// From this size on, pages are asked for from the system and given back to it; below, they are malloc's, which would
/// leave pages half empty where each piece had its own.
pub const MAPPED_FROM: usize = 64 << 10;
const PAGE: usize = 4096;
/// What malloc takes besides, and rounds up to.
const MALLOC: u64 = 32;
/// Pages that were given back and wait for the next who asks for as many: all of them together at the most.
///
/// To get pages from the system, cleared, and to give them back takes about as long as reading them.
pub const MOST_SPARE: usize = 4 << 20;

static SPARE: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());

/// Bytes in memory.
///
/// malloc keeps what it was given back for the next who asks: once a large piece was freed, pieces of that size come
/// from its heap, which shrinks only at its end.
#[derive(Debug)]
pub struct Memory(Piece);

#[derive(Debug)]
enum Piece {
    Mapped(Pages),
    Heap(Vec<u8>),
}

/// Whole pages of the system's, of which the first `length` bytes are in use.
#[derive(Debug)]
struct Pages {
    /// There until it is dropped.
    map: Option<MmapMut>,
    length: usize,
}

impl Memory {
    /// So many zeros; `None` where there is no memory for them.
    #[must_use]
    pub fn zeroed(length: usize) -> Option<Self> {
        if length >= MAPPED_FROM
            && let Some(map) = fresh(length)
        {
            return Some(Self(Piece::Mapped(Pages { map: Some(map), length })));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.resize(length, 0);
        Some(Self(Piece::Heap(bytes)))
    }

    /// So many bytes that begin at a page, with anything in them; `None` where there is no memory for them.
    #[must_use]
    pub fn at_page(length: usize) -> Option<Self> {
        let pages = length.checked_next_multiple_of(PAGE)?;
        let map = take_spare(pages).or_else(|| fresh(length))?;
        Some(Self(Piece::Mapped(Pages { map: Some(map), length })))
    }

    /// What so many bytes take, rounding included.
    #[must_use]
    pub fn cost(length: u64) -> u64 {
        if length >= MAPPED_FROM as u64 { Self::cost_at_page(length) } else { length + MALLOC }
    }

    /// What so many bytes take that begin at a page.
    #[must_use]
    pub fn cost_at_page(length: u64) -> u64 {
        length.div_ceil(PAGE as u64).saturating_mul(PAGE as u64)
    }
}

/// Zeros from the system, in whole pages; all at once: one by one, as they are touched, takes several times as long.
fn fresh(length: usize) -> Option<MmapMut> {
    let pages = length.checked_next_multiple_of(PAGE)?.max(PAGE);
    MmapOptions::new().len(pages).populate().map_anon().ok()
}

fn take_spare(bytes: usize) -> Option<MmapMut> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = spare.iter().rposition(|map| map.len() == bytes)?;
    Some(spare.swap_remove(place))
}

impl Drop for Pages {
    fn drop(&mut self) {
        let Some(map) = self.map.take().filter(|map| map.len() <= MOST_SPARE) else { return };
        let mut gone = Vec::new();
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes: usize = spare.iter().map(|map| map.len()).sum();
        // Others of another size may never be asked for again.
        while bytes + map.len() > MOST_SPARE {
            let oldest = spare.remove(0);
            bytes -= oldest.len();
            gone.push(oldest);
        }
        spare.push(map);
        // The system takes its time, which nobody has to wait for.
        drop(spare);
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Piece::Mapped(pages) => pages.map.as_ref().map_or(&[], |map| &map[..pages.length]),
            Piece::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Piece::Mapped(Pages { map, length }) => map.as_mut().map_or(&mut [], |map| &mut map[..*length]),
            Piece::Heap(bytes) => bytes,
        }
    }
}

/// What becomes of the pages of files that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageCache {
    /// They are let go, or the system would hold the data a second time, outside of every line.
    #[default]
    LetGo,
    /// They stay, as long as the system wants: for small data sets, and for measuring without a disk.
    Keep,
}

impl PageCache {
    /// Lets go of all pages that hold some of these bytes, unless they are to stay.
    pub fn after_reading(self, file: &File, offset: u64, len: u64) {
        if self == Self::LetGo {
            let_go(file, offset, len);
        }
    }
}

/// Says that reads come from anywhere, so that nothing is read ahead that nobody asked for.
pub fn expect_random_reads(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Lets go of all pages that hold some of these bytes. Pages that are not on the disk yet stay.
pub fn let_go(file: &File, offset: u64, len: u64) {
    #[cfg(target_os = "linux")]
    {
        // Pages that are covered in part would stay.
        let page = PAGE as u64;
        let start = offset / page * page;
        let len = offset.saturating_add(len).next_multiple_of(page) - start;
        let _ = rustix::fs::fadvise(file, start, std::num::NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}
