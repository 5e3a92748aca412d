//! What the allocator knows.

use std::collections::VecDeque;

use super::device::{AddressOrder, Device};
use super::expandable::ExpandableSegment;
use crate::block::{Block, BlockId, Blocks};
use crate::pool::Pools;
use crate::version::TieBreak;
use crate::{Action, AllocatorSettings, BlockLife, Entry, Statistics};

/// PyTorch's caching allocator on one device.
#[derive(Debug, Clone)]
pub struct Allocator {
    pub(super) settings: AllocatorSettings,
    /// The most that may be reserved, where a fraction of the device is set.
    pub(super) limit: Option<u64>,
    pub(super) device: Device,
    /// What an expandable segment is laid out for.
    pub(super) device_size: u64,
    pub(super) blocks: Blocks,
    pub(super) pools: Pools,
    pub(super) expandable: Vec<ExpandableSegment>,
    /// Blocks whose tensor is gone and that a stream may still use, oldest first.
    /// Some may be free already.
    pub(super) pending: VecDeque<(BlockId, u32)>,
    pub(super) tickets: u32,
    pub(super) counter: u64,
    pub(super) statistics: Statistics,
    entries: Option<Vec<Entry>>,
}

/// What a device is taken for where its size is not known.
const UNKNOWN_DEVICE: u64 = 1 << 40;

impl Allocator {
    /// An allocator that holds nothing yet.
    ///
    /// `limit` is the most it may reserve (`set_per_process_memory_fraction`), `capacity` what the device can give.
    #[must_use]
    pub fn new(settings: AllocatorSettings, limit: Option<u64>, capacity: Option<u64>, order: AddressOrder) -> Self {
        let tie_break = settings.version.tie_break();
        Self {
            settings,
            limit,
            device: Device::new(capacity, order),
            device_size: capacity.unwrap_or(UNKNOWN_DEVICE),
            blocks: Blocks::default(),
            pools: Pools::new(tie_break),
            expandable: Vec::new(),
            pending: VecDeque::new(),
            tickets: 0,
            counter: 0,
            statistics: Statistics::default(),
            entries: None,
        }
    }

    /// Keeps a history from here on, as PyTorch does.
    pub fn record(&mut self) {
        self.entries.get_or_insert_default();
    }

    /// What was recorded since it was last asked.
    pub fn take_entries(&mut self) -> Vec<Entry> {
        self.entries.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Exchanges what was recorded for an empty list, so that its room is used again.
    pub(crate) fn swap_entries(&mut self, entries: &mut Vec<Entry>) {
        if let Some(own) = &mut self.entries {
            std::mem::swap(own, entries);
        }
    }

    /// The request to free a block, where that is pending.
    pub(crate) fn ticket_of(&self, id: BlockId) -> u32 {
        self.blocks[id].ticket
    }

    /// A block that a tensor has, as its life begins.
    pub(crate) fn life_of(&self, id: BlockId, begin: Option<u32>) -> BlockLife {
        let Block { address, size, requested, stream, .. } = self.blocks[id];
        BlockLife { address, size, requested, stream, begin, end: None }
    }

    /// Where the segment begins that can grow and has an address, or the address itself where there is none.
    pub(crate) fn base_of(&self, address: u64) -> u64 {
        let bases = self.expandable.iter().map(|segment| segment.base).filter(|base| *base <= address);
        bases.max().unwrap_or(address)
    }

    /// The addresses that the device gives for what is asked next, before it has any of its own.
    pub fn place_next_at(&mut self, addresses: impl IntoIterator<Item = u64>) {
        self.device.recorded.clear();
        self.device.recorded.extend(addresses);
    }

    /// What it has counted.
    #[must_use]
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(super) fn note(&mut self, action: Action, address: u64, size: u64, stream: u64) {
        if let Some(entries) = &mut self.entries {
            entries.push(Entry { action, address, size, stream });
        }
    }

    pub(super) fn put_into_pool(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        self.pools[block.pool].insert(id, block);
    }

    pub(super) fn take_from_pool(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool].remove(id, block);
    }

    /// The number of a new block, or of a new segment, whichever the version counts.
    pub(super) fn next_counter(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The number of a block that is cut off another one's front.
    pub(super) fn counter_of_piece(&mut self, whole: &Block) -> u64 {
        match self.settings.version.tie_break() {
            TieBreak::Block => self.next_counter(),
            TieBreak::Address | TieBreak::Segment => whole.counter,
        }
    }

    /// Whether blocks are freed by age.
    pub(super) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0
    }
}
