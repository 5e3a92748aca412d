//! What goes back to the device: by age, to make room for one request, or all that is cached.

use super::Allocator;
use super::malloc::Request;
use crate::Action;
use crate::block::BlockId;
use crate::settings::PoolKind;

impl Allocator {
    /// `torch.cuda.empty_cache()`.
    pub fn empty_cache(&mut self) {
        self.release_cached();
    }

    /// How much is reserved above the part of the limit that is set.
    pub(super) fn garbage(&self) -> u64 {
        let limit = self.limit.filter(|_| self.collects_garbage());
        let threshold = limit.map(|limit| (self.settings.garbage_collection_threshold * limit as f64) as u64);
        threshold.map_or(0, |threshold| self.statistics.reserved.current.saturating_sub(threshold))
    }

    /// Frees old blocks of the large pool, until the part of the limit that is set is kept.
    pub(super) fn collect_garbage(&mut self) {
        let target = self.garbage();
        if target == 0 {
            return;
        }
        let now = self.pools[PoolKind::Large].searches;
        let is_whole = |id: &BlockId| !self.blocks[*id].is_split();
        let mut whole: Vec<(BlockId, u64)> = self.pools[PoolKind::Large]
            .free()
            .filter(is_whole)
            .map(|id| (id, now - self.blocks[id].freed_at))
            .collect();
        let mut ages: u64 = whole.iter().map(|(_, age)| age).sum();
        let mut count = whole.len() as u64;
        let mut reclaimed = 0;
        let mut has_freed = true;
        while reclaimed < target && has_freed && count > 0 {
            let oldest = ages as f64 / count as f64;
            has_freed = false;
            whole.retain(|(id, age)| {
                if (*age as f64) < oldest || self.blocks[*id].expandable.is_some() {
                    return true;
                }
                reclaimed += self.blocks[*id].size;
                ages -= age;
                count -= 1;
                has_freed = true;
                self.give_back(*id);
                false
            });
        }
    }

    /// Frees blocks that are too large to be split, where together they make room for a request.
    pub(super) fn release_available(&mut self, request: &Request) -> bool {
        let Some(most) = self.settings.max_split_size else { return false };
        let wanted = request.size.max(most);
        let pool = &self.pools[request.pool];
        let first = pool.fitting(request.stream, wanted).next();
        let below: Vec<BlockId> = pool.below(request.stream, wanted).collect();
        if let Some(id) = first.filter(|id| self.blocks[*id].expandable.is_none()) {
            self.give_back(id);
            return true;
        }
        let mut freed = 0;
        for id in below {
            let block = &self.blocks[id];
            if freed >= wanted || block.size < most || block.stream != request.stream {
                break;
            }
            if block.expandable.is_none() {
                freed += block.size;
                self.give_back(id);
            }
        }
        freed >= wanted
    }

    /// Frees all that is cached, after waiting for all streams.
    pub(super) fn release_cached(&mut self) {
        self.complete_all();
        for kind in [PoolKind::Large, PoolKind::Small] {
            let free: Vec<BlockId> = self.pools[kind].free().collect();
            let (growing, fixed): (Vec<_>, Vec<_>) =
                free.into_iter().partition(|id| self.blocks[*id].expandable.is_some());
            for id in fixed {
                if !self.blocks[id].is_split() {
                    self.give_back(id);
                }
            }
            growing.into_iter().for_each(|id| self.unmap(id));
        }
    }

    /// Gives a whole segment back that is in its pool.
    fn give_back(&mut self, id: BlockId) {
        self.take_from_pool(id);
        let (address, size, stream) = (self.blocks[id].address, self.blocks[id].size, self.blocks[id].stream);
        self.note(Action::SegmentFree, address, size, stream);
        self.statistics.segments.take(1);
        self.statistics.reserved.take(size);
        self.statistics.device_frees += 1;
        self.device.given -= size;
        self.blocks.remove(id);
    }
}
