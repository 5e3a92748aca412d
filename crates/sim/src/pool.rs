//! The free blocks of a pool, in the order of best fit.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use crate::block::{Block, BlockId};
use crate::settings::PoolKind;
use crate::version::TieBreak;

/// Stream, size, and what decides between equals.
type Key = (u64, u64, u64, u64, BlockId);

/// Both pools.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    small: Pool,
    large: Pool,
}

impl Pools {
    pub(crate) const fn new(tie_break: TieBreak) -> Self {
        Self { small: Pool::new(tie_break), large: Pool::new(tie_break) }
    }
}

impl Index<PoolKind> for Pools {
    type Output = Pool;

    fn index(&self, kind: PoolKind) -> &Pool {
        match kind {
            PoolKind::Small => &self.small,
            PoolKind::Large => &self.large,
        }
    }
}

impl IndexMut<PoolKind> for Pools {
    fn index_mut(&mut self, kind: PoolKind) -> &mut Pool {
        match kind {
            PoolKind::Small => &mut self.small,
            PoolKind::Large => &mut self.large,
        }
    }
}

/// One of the two pools.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    tie_break: TieBreak,
    free: BTreeSet<Key>,
    /// Parts of expandable segments without memory: stream, address.
    unmapped: BTreeSet<(u64, u64, BlockId)>,
    /// How often it was searched, where ages count.
    pub(crate) searches: u64,
}

impl Pool {
    const fn new(tie_break: TieBreak) -> Self {
        Self { tie_break, free: BTreeSet::new(), unmapped: BTreeSet::new(), searches: 0 }
    }

    fn key(&self, id: BlockId, block: &Block) -> Key {
        let (first, second) = match self.tie_break {
            TieBreak::Address => (block.address, 0),
            TieBreak::Block => (block.counter, 0),
            TieBreak::Segment => (block.counter, block.address),
        };
        (block.stream, block.size, first, second, id)
    }

    pub(crate) fn insert(&mut self, id: BlockId, block: &mut Block) {
        block.freed_at = self.searches;
        self.free.insert(self.key(id, block));
    }

    pub(crate) fn remove(&mut self, id: BlockId, block: &Block) {
        let was_there = self.free.remove(&self.key(id, block));
        debug_assert!(was_there, "a free block is in its pool");
    }

    pub(crate) fn insert_unmapped(&mut self, id: BlockId, block: &Block) {
        self.unmapped.insert((block.stream, block.address, id));
    }

    pub(crate) fn remove_unmapped(&mut self, id: BlockId, block: &Block) {
        let was_there = self.unmapped.remove(&(block.stream, block.address, id));
        debug_assert!(was_there, "an unmapped block is in its pool");
    }

    /// Free blocks of a stream of at least this size, the best first.
    pub(crate) fn fitting(&self, stream: u64, size: u64) -> impl Iterator<Item = BlockId> + '_ {
        let own = self.free.range(first_key(stream, size)..).take_while(move |key| key.0 == stream);
        own.map(|key| key.4)
    }

    /// Free blocks before those of this stream and size, the last first: of any stream.
    pub(crate) fn below(&self, stream: u64, size: u64) -> impl Iterator<Item = BlockId> + '_ {
        self.free.range(..first_key(stream, size)).rev().map(|key| key.4)
    }

    /// All free blocks, in order.
    pub(crate) fn free(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.free.iter().map(|key| key.4)
    }

    /// Unmapped parts of a stream's segments, by address.
    pub(crate) fn unmapped(&self, stream: u64) -> impl Iterator<Item = BlockId> + '_ {
        self.unmapped.range((stream, 0, FIRST)..).take_while(move |key| key.0 == stream).map(|key| key.2)
    }
}

const FIRST: BlockId = BlockId::FIRST;

const fn first_key(stream: u64, size: u64) -> Key {
    (stream, size, 0, 0, FIRST)
}
