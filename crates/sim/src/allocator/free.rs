//! What tensors give back.

use super::Allocator;
use crate::Action;
use crate::block::{Block, BlockId, BlockState};

impl Allocator {
    /// A tensor is gone; its block is free when [`Allocator::complete`] says that no stream uses it any more.
    pub fn free(&mut self, id: BlockId) {
        self.request_free(id);
    }

    /// As [`Allocator::free`]; the number of the request.
    pub(crate) fn request_free(&mut self, id: BlockId) -> u32 {
        let block = &mut self.blocks[id];
        debug_assert_eq!(block.state, BlockState::Allocated, "only what is allocated is freed");
        block.state = BlockState::Pending;
        let (address, size, requested, stream) = (block.address, block.size, block.requested, block.stream);
        self.statistics.allocated.take(size);
        self.note(Action::FreeRequested, address, requested, stream);
        self.wait_for(id)
    }

    /// Lets a block wait until no stream uses it.
    pub(super) fn wait_for(&mut self, id: BlockId) -> u32 {
        // There are fewer requests than 2^32, and a block that waits has one of the last.
        self.tickets = self.tickets.wrapping_add(1);
        self.blocks[id].ticket = self.tickets;
        self.pending.push_back((id, self.tickets));
        self.tickets
    }

    /// No stream uses a block any more whose tensor is gone; nothing where that is known already.
    pub fn complete(&mut self, id: BlockId) {
        self.complete_request(id, self.blocks[id].ticket);
    }

    /// As [`Allocator::complete`], of one request to free it: the block may have had another life since.
    pub(crate) fn complete_request(&mut self, id: BlockId, ticket: u32) {
        if !self.is_waiting((id, ticket)) {
            return;
        }
        self.make_free(id);
        // Those that are done go where that costs nothing.
        while self.pending.back().is_some_and(|last| !self.is_waiting(*last)) {
            self.pending.pop_back();
        }
        while self.pending.front().is_some_and(|first| !self.is_waiting(*first)) {
            self.pending.pop_front();
        }
    }

    fn is_waiting(&self, (id, ticket): (BlockId, u32)) -> bool {
        self.blocks[id].state == BlockState::Pending && self.blocks[id].ticket == ticket
    }

    /// Waits for all streams.
    pub(super) fn complete_all(&mut self) {
        while let Some((id, ticket)) = self.pending.pop_front() {
            if self.is_waiting((id, ticket)) {
                self.make_free(id);
            }
        }
    }

    fn make_free(&mut self, id: BlockId) {
        let Block { address, size, requested, stream, expandable, .. } = self.blocks[id];
        self.note(Action::FreeCompleted, address, requested, stream);
        self.statistics.active.take(size);
        self.statistics.requested.take(requested);
        self.blocks[id].state = BlockState::Free;
        self.blocks[id].ticket = 0;
        let merged = self.merge(id);
        self.put_into_pool(id);
        if expandable.is_none() {
            let block = &self.blocks[id];
            let own = if block.is_split() { block.size } else { 0 };
            self.statistics.inactive_split.change(own, merged);
        }
    }

    /// Lets a block take over the free neighbours of its kind, which leave the pool; their bytes.
    pub(super) fn merge(&mut self, id: BlockId) -> u64 {
        let before = self.blocks[id].size;
        for side in [|block: &Block| block.previous, |block: &Block| block.next] {
            let Some(neighbour) = side(&self.blocks[id]) else { continue };
            let other = &self.blocks[neighbour];
            if other.state != BlockState::Free || other.mapped != self.blocks[id].mapped {
                continue;
            }
            if other.mapped {
                self.take_from_pool(neighbour);
            } else {
                self.take_from_unmapped(neighbour);
            }
            self.blocks.absorb(id, neighbour);
        }
        self.blocks[id].size - before
    }
}
