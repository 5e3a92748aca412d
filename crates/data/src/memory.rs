//! Memory that goes back to the system when it is dropped.

use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// From this size on, pages are asked for from the system and given back to it; below, they are malloc's, which would
/// leave pages half empty where each piece had its own.
const MAPPED_FROM: usize = 64 << 10;
const PAGE: u64 = 4096;
/// What malloc takes besides, and rounds up to.
const MALLOC: u64 = 32;

/// Bytes in memory, zeros at first.
///
/// malloc keeps what it was given back for the next who asks: once a large piece was freed, pieces of that size come
/// from its heap, which shrinks only at its end.
#[derive(Debug)]
pub(crate) enum Memory {
    Mapped(MmapMut),
    Heap(Vec<u8>),
}

impl Memory {
    /// So many zeros; `None` where there is no memory for them.
    pub(crate) fn zeroed(length: usize) -> Option<Self> {
        if length >= MAPPED_FROM {
            // All pages at once: one by one, as they are touched, takes several times as long.
            if let Ok(mapped) = MmapOptions::new().len(length).populate().map_anon() {
                return Some(Self::Mapped(mapped));
            }
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.resize(length, 0);
        Some(Self::Heap(bytes))
    }

    /// What so many bytes take, rounding included.
    pub(crate) fn cost(length: u64) -> u64 {
        if length >= MAPPED_FROM as u64 { length.div_ceil(PAGE).saturating_mul(PAGE) } else { length + MALLOC }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Heap(bytes) => bytes,
        }
    }
}
