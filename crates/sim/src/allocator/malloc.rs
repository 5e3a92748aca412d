//! A request: from the cache, from the device, or after cached memory was given back.

use super::Allocator;
use crate::block::{Block, BlockId, BlockState};
use crate::settings::{PoolKind, QUANTUM, SMALL};
use crate::{Action, AllocatorSettings};

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) size: u64,
    pub(super) segment: u64,
    pub(super) stream: u64,
    pub(super) pool: PoolKind,
}

impl Request {
    fn new(settings: &AllocatorSettings, size: u64, stream: u64) -> Self {
        Self { size, segment: settings.segment_size(size), stream, pool: PoolKind::of(size) }
    }
}

impl Allocator {
    /// Asks for so many bytes on a stream; nothing where memory runs out.
    ///
    /// # Panics
    ///
    /// Where the request is 0: PyTorch does not ask for nothing.
    pub fn malloc(&mut self, requested: u64, stream: u64) -> Option<BlockId> {
        assert!(requested > 0, "a request of 0 bytes never comes to the allocator");
        let request = Request::new(&self.settings, self.settings.round(requested), stream);
        let found = self.search(&request).or_else(|| self.ask_device(&request));
        let Some(id) = found else {
            self.statistics.ooms += 1;
            self.note(Action::Oom, 0, request.size, stream);
            return None;
        };
        Some(self.commit(id, &request, requested))
    }

    /// Whether a request would have to ask the device for more, and would be given it without anything being released.
    #[must_use]
    pub fn would_grow(&self, requested: u64, stream: u64) -> bool {
        let request = Request::new(&self.settings, self.settings.round(requested), stream);
        self.best_fit(&request).is_none()
            && self.garbage() == 0
            && self.is_allowed(request.segment)
            && self.device.has(request.segment)
    }

    fn ask_device(&mut self, request: &Request) -> Option<BlockId> {
        self.collect_garbage();
        if let Some(id) = self.grow(request) {
            return Some(id);
        }
        if self.release_available(request)
            && let Some(id) = self.grow(request)
        {
            return Some(id);
        }
        self.release_cached();
        self.statistics.retries += 1;
        self.grow(request)
    }

    /// Takes the best block of the cache.
    fn search(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() {
            self.pools[request.pool].searches += 1;
        }
        let id = self.best_fit(request)?;
        self.take_from_pool(id);
        Some(id)
    }

    fn best_fit(&self, request: &Request) -> Option<BlockId> {
        let mut fitting = self.pools[request.pool].fitting(request.stream, request.size);
        let mut id = fitting.next()?;
        if self.blocks[id].expandable.is_some() {
            if self.settings.expandable_segments {
                // Of segments that can grow, the one that is filled most.
                let room = |id: BlockId| {
                    let block = &self.blocks[id];
                    let beyond = block.next.map(|next| &self.blocks[next]).filter(|next| !next.mapped);
                    block.size + beyond.map_or(0, |next| next.size)
                };
                for next in fitting {
                    if self.blocks[id].expandable.is_none() || room(next) >= room(id) {
                        break;
                    }
                    id = next;
                }
            } else {
                id = fitting.find(|id| self.blocks[*id].expandable.is_none())?;
            }
        }
        let size = self.blocks[id].size;
        let is_too_large = match self.settings.max_split_size {
            Some(most) if request.size < most => size >= most,
            Some(_) => size >= request.size + self.settings.max_non_split_rounding,
            None => false,
        };
        (!is_too_large).then_some(id)
    }

    pub(super) fn is_allowed(&self, segment: u64) -> bool {
        self.limit.is_none_or(|limit| self.statistics.reserved.current + segment <= limit)
    }

    /// A block of new memory, in no pool yet.
    fn grow(&mut self, request: &Request) -> Option<BlockId> {
        if !self.is_allowed(request.segment) {
            return None;
        }
        if self.settings.expandable_segments {
            return self.expand(request);
        }
        if !self.device.has(request.segment) {
            return None;
        }
        let address = self.device.place(request.segment)?;
        self.device.given += request.segment;
        self.statistics.segments.add(1);
        self.statistics.reserved.add(request.segment);
        self.statistics.device_allocations += 1;
        self.note(Action::SegmentAlloc, address, request.segment, request.stream);
        let counter = self.next_counter();
        Some(self.blocks.add(Block {
            address,
            size: request.segment,
            requested: 0,
            stream: request.stream,
            pool: request.pool,
            state: BlockState::Free,
            mapped: true,
            previous: None,
            next: None,
            expandable: None,
            freed_at: 0,
            ticket: 0,
            counter,
        }))
    }

    /// Hands a block out that is in no pool, cut to size where its rest is worth it.
    fn commit(&mut self, id: BlockId, request: &Request, requested: u64) -> BlockId {
        let whole = self.blocks[id].clone();
        let rest = whole.size - request.size;
        let is_split = match request.pool == PoolKind::Small || self.settings.expandable_segments {
            true => rest >= QUANTUM,
            false => !self.settings.is_oversize(request.size) && rest > SMALL,
        };
        let is_counted = whole.expandable.is_none();
        let given = if is_split {
            let counter = self.counter_of_piece(&whole);
            let piece = Block { size: request.size, counter, ..whole.clone() };
            let piece = self.blocks.insert_before(id, piece);
            let remainder = &mut self.blocks[id];
            remainder.address += request.size;
            remainder.size = rest;
            self.put_into_pool(id);
            if is_counted {
                let (more, less) = if whole.is_split() { (0, request.size) } else { (rest, 0) };
                self.statistics.inactive_split.change(more, less);
            }
            piece
        } else {
            if is_counted && whole.is_split() {
                self.statistics.inactive_split.take(whole.size);
            }
            id
        };
        let block = &mut self.blocks[given];
        block.state = BlockState::Allocated;
        block.requested = requested;
        let (address, size) = (block.address, block.size);
        self.statistics.allocated.add(size);
        self.statistics.active.add(size);
        self.statistics.requested.add(requested);
        self.note(Action::Alloc, address, requested, request.stream);
        given
    }
}
