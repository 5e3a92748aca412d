//! Blocks: pieces of segments, in one table, which know their neighbours.

use crate::settings::PoolKind;

/// A block's place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u32);

impl BlockId {
    /// It comes before all others, or is the first of them.
    pub(crate) const FIRST: Self = Self(0);
}

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// It may be handed out.
    Free,
    /// A tensor has it.
    Allocated,
    /// Its tensor is gone, and another stream may still use it.
    Pending,
}

/// A piece of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) stream: u64,
    pub(crate) pool: PoolKind,
    pub(crate) state: BlockState,
    /// Whether memory stands behind it: always, outside of expandable segments.
    pub(crate) mapped: bool,
    pub(crate) previous: Option<BlockId>,
    pub(crate) next: Option<BlockId>,
    pub(crate) expandable: Option<u32>,
    /// What its pool had counted when it became free.
    pub(crate) freed_at: u64,
    /// The number of the request to free it, while that is pending.
    pub(crate) ticket: u32,
    /// Its age, or its segment's, where that decides between equals.
    pub(crate) counter: u64,
}

impl Block {
    pub(crate) const fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    pub(crate) const fn end(&self) -> u64 {
        self.address + self.size
    }
}

/// The table; places of blocks that are gone are used again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks {
    all: Vec<Block>,
    unused: Vec<BlockId>,
}

impl Blocks {
    pub(crate) fn add(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.unused.pop() {
            self[id] = block;
            return id;
        }
        let id = BlockId(u32::try_from(self.all.len()).expect("fewer than 2^32 blocks at once"));
        self.all.push(block);
        id
    }

    pub(crate) fn remove(&mut self, id: BlockId) {
        self.unused.push(id);
    }

    /// Puts a new block before another one.
    pub(crate) fn insert_before(&mut self, id: BlockId, block: Block) -> BlockId {
        let previous = self[id].previous;
        let new = self.add(Block { previous, next: Some(id), ..block });
        if let Some(previous) = previous {
            self[previous].next = Some(new);
        }
        self[id].previous = Some(new);
        new
    }

    /// Puts a new block behind another one.
    pub(crate) fn insert_after(&mut self, id: BlockId, block: Block) -> BlockId {
        let next = self[id].next;
        let new = self.add(Block { previous: Some(id), next, ..block });
        if let Some(next) = next {
            self[next].previous = Some(new);
        }
        self[id].next = Some(new);
        new
    }

    /// Lets a block take over a neighbour, which is gone then.
    pub(crate) fn absorb(&mut self, id: BlockId, neighbour: BlockId) {
        let gone = self[neighbour].clone();
        let block = &mut self[id];
        block.size += gone.size;
        if block.previous == Some(neighbour) {
            block.address = gone.address;
            block.previous = gone.previous;
            if let Some(previous) = gone.previous {
                self[previous].next = Some(id);
            }
        } else {
            block.next = gone.next;
            if let Some(next) = gone.next {
                self[next].previous = Some(id);
            }
        }
        self.remove(neighbour);
    }
}

impl std::ops::Index<BlockId> for Blocks {
    type Output = Block;

    fn index(&self, id: BlockId) -> &Block {
        &self.all[id.0 as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.all[id.0 as usize]
    }
}
