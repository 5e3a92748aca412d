//! An allocator that held something before.

use super::Allocator;
use super::expandable::ExpandableSegment;
use crate::block::{Block, BlockId, BlockState};
use crate::start::{StartBlock, StartSegment};

impl Allocator {
    /// Takes over what was held, before anything else is asked for; the blocks that were in use, in that order.
    pub(crate) fn restore(&mut self, segments: &[StartSegment]) -> Vec<BlockId> {
        let mut used = Vec::new();
        let mut rest = segments;
        while let Some(first) = rest.first() {
            let count = if first.is_expandable { self.runs_of_one(rest) } else { 1 };
            let (runs, others) = rest.split_at(count);
            self.restore_segment(runs, &mut used);
            rest = others;
        }
        // Nobody knows in what order they were freed.
        for id in &used {
            if self.blocks[*id].state == BlockState::Pending {
                self.wait_for(*id);
            }
        }
        used
    }

    /// How many of these are runs of one range of addresses.
    fn runs_of_one(&self, segments: &[StartSegment]) -> usize {
        let first = &segments[0];
        let end = first.address + self.device_size + self.device_size / 8;
        let is_of_it = |run: &&StartSegment| {
            run.is_expandable && run.stream == first.stream && run.pool == first.pool && run.address < end
        };
        segments.iter().take_while(is_of_it).count()
    }

    fn restore_segment(&mut self, runs: &[StartSegment], used: &mut Vec<BlockId>) {
        let first = &runs[0];
        let page = self.settings.page(first.pool);
        let expandable = first.is_expandable.then(|| {
            self.expandable.push(ExpandableSegment { base: first.address, page });
            (self.expandable.len() - 1) as u32
        });
        let counter = self.next_counter();
        let free = |address: u64, size: u64| Block {
            address,
            size,
            requested: 0,
            stream: first.stream,
            pool: first.pool,
            state: BlockState::Free,
            mapped: true,
            previous: None,
            next: None,
            expandable,
            freed_at: 0,
            ticket: 0,
            counter,
        };
        let mut pieces: Vec<Block> = Vec::new();
        let mut at = first.address;
        for run in runs {
            if at < run.address {
                pieces.push(Block { mapped: false, ..free(at, run.address - at) });
                at = run.address;
            }
            for StartBlock { address, size, requested, is_pending } in run.blocks.iter().copied() {
                if at < address {
                    pieces.push(free(at, address - at));
                }
                let state = if is_pending { BlockState::Pending } else { BlockState::Allocated };
                pieces.push(Block { state, requested, ..free(address, size) });
                at = address + size;
            }
            let end = run.address + run.size;
            if at < end {
                pieces.push(free(at, end - at));
                at = end;
            }
            self.device.given += run.size;
            self.statistics.reserved.add(run.size);
        }
        if expandable.is_some() {
            let end = first.address + (self.device_size + self.device_size / 8).next_multiple_of(page);
            pieces.extend((at < end).then(|| Block { mapped: false, ..free(at, end - at) }));
        } else {
            self.statistics.segments.add(1);
        }
        self.link(pieces, used);
    }

    fn link(&mut self, pieces: Vec<Block>, used: &mut Vec<BlockId>) {
        let is_split = pieces.len() > 1;
        let mut last = None;
        for piece in pieces {
            let Block { size, requested, state, mapped, expandable, .. } = piece;
            let id = match last {
                Some(last) => self.blocks.insert_after(last, piece),
                None => self.blocks.add(piece),
            };
            last = Some(id);
            if !mapped {
                self.put_into_unmapped(id);
                continue;
            }
            if state == BlockState::Free {
                self.put_into_pool(id);
                if is_split && expandable.is_none() {
                    self.statistics.inactive_split.add(size);
                }
                continue;
            }
            used.push(id);
            self.statistics.active.add(size);
            self.statistics.requested.add(requested);
            if state == BlockState::Allocated {
                self.statistics.allocated.add(size);
            }
        }
    }
}
