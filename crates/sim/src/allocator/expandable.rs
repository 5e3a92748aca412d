//! Segments that grow page by page in a range of addresses of their own.

use super::Allocator;
use super::malloc::Request;
use crate::Action;
use crate::block::{Block, BlockId, BlockState};

/// A range of addresses, some of whose pages have memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpandableSegment {
    pub(super) base: u64,
    pub(super) page: u64,
}

impl Allocator {
    /// A block of at least a request's size, in no pool, with memory behind all of it.
    pub(super) fn expand(&mut self, request: &Request) -> Option<BlockId> {
        let mut id = match self.with_room(request) {
            Some(id) => id,
            None => self.new_expandable(request)?,
        };
        if !self.blocks[id].mapped {
            let size = self.blocks[id].size.min(request.size);
            self.map(id, size)?;
        }
        while self.blocks[id].size < request.size {
            let next = self.blocks[id].next.expect("room was counted up to the request's size");
            let missing = request.size - self.blocks[id].size;
            let size = self.blocks[next].size.min(missing);
            self.map(next, size)?;
            id = next;
        }
        self.take_from_pool(id);
        Some(id)
    }

    /// The first block of a run of free and unmapped ones that is long enough.
    fn with_room(&self, request: &Request) -> Option<BlockId> {
        let pool = &self.pools[request.pool];
        let is_free = |id: &BlockId| self.blocks[*id].state == BlockState::Free;
        let starts = pool.unmapped(request.stream).map(|id| self.blocks[id].previous.filter(is_free).unwrap_or(id));
        let has_room = |start: &BlockId| {
            let mut room = 0;
            let mut next = Some(*start);
            while let Some(id) = next.filter(is_free) {
                room += self.blocks[id].size;
                if room >= request.size {
                    return true;
                }
                next = self.blocks[id].next;
            }
            false
        };
        starts.into_iter().find(has_room)
    }

    fn new_expandable(&mut self, request: &Request) -> Option<BlockId> {
        let page = self.settings.page(request.pool);
        let size = (self.device_size + self.device_size / 8).max(request.size).next_multiple_of(page);
        let base = self.device.place(size)?;
        let index = u32::try_from(self.expandable.len()).expect("fewer than 2^32 segments");
        self.expandable.push(ExpandableSegment { base, page });
        let counter = self.next_counter();
        let id = self.blocks.add(Block {
            address: base,
            size,
            requested: 0,
            stream: request.stream,
            pool: request.pool,
            state: BlockState::Free,
            mapped: false,
            previous: None,
            next: None,
            expandable: Some(index),
            freed_at: 0,
            ticket: 0,
            counter,
        });
        self.put_into_unmapped(id);
        Some(id)
    }

    /// Puts memory behind the beginning of an unmapped block, in whole pages; it is in its pool then.
    fn map(&mut self, id: BlockId, size: u64) -> Option<()> {
        let block = self.blocks[id].clone();
        let segment = self.expandable[block.expandable? as usize];
        let size = size.next_multiple_of(segment.page).min(block.size);
        if !self.device.has(size) {
            return None;
        }
        self.take_from_unmapped(id);
        if size < block.size {
            let rest = Block { address: block.address + size, size: block.size - size, ..block.clone() };
            let rest = self.blocks.insert_after(id, rest);
            self.put_into_unmapped(rest);
        }
        let mapped = &mut self.blocks[id];
        mapped.size = size;
        mapped.mapped = true;
        self.merge(id);
        self.put_into_pool(id);
        self.device.given += size;
        self.statistics.reserved.add(size);
        self.statistics.device_allocations += 1;
        self.note(Action::SegmentMap, block.address, size, block.stream);
        Some(())
    }

    /// Takes the memory away behind all pages that lie in a free block.
    pub(super) fn unmap(&mut self, id: BlockId) {
        let block = self.blocks[id].clone();
        let Some(index) = block.expandable else { return };
        let ExpandableSegment { base, page } = self.expandable[index as usize];
        let start = base + (block.address - base).next_multiple_of(page);
        let end = base + (block.end() - base) / page * page;
        if start >= end {
            return;
        }
        self.take_from_pool(id);
        if block.address < start {
            let left = self.blocks.insert_before(id, Block { size: start - block.address, ..block.clone() });
            self.put_into_pool(left);
        }
        if end < block.end() {
            let right = Block { address: end, size: block.end() - end, ..block.clone() };
            let right = self.blocks.insert_after(id, right);
            self.put_into_pool(right);
        }
        let middle = &mut self.blocks[id];
        middle.address = start;
        middle.size = end - start;
        middle.mapped = false;
        self.merge(id);
        self.device.given -= end - start;
        self.statistics.reserved.take(end - start);
        self.statistics.device_frees += 1;
        self.note(Action::SegmentUnmap, start, end - start, block.stream);
        if self.blocks[id].is_split() {
            self.put_into_unmapped(id);
        } else {
            self.blocks.remove(id);
        }
    }

    pub(super) fn put_into_unmapped(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool].insert_unmapped(id, block);
    }

    pub(super) fn take_from_unmapped(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool].remove_unmapped(id, block);
    }
}
