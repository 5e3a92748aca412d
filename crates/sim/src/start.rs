//! What an allocator held when a history begins that was cut at its front: read backwards from what it held at the end.
//!
//! Segments and who had them come out exactly. How large a block was that is gone at the end is not recorded; where the pool does not decide
//! it, it is what fits the requests that follow.

use std::collections::BTreeMap;

use crate::settings::{PoolKind, SMALL, SMALL_SEGMENT};
use crate::{Action, AllocatorSettings, Entry, Segment};

/// A segment at the start of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartSegment {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: u64,
    pub(crate) pool: PoolKind,
    pub(crate) is_expandable: bool,
    /// What was in use, by address; the rest is free.
    pub(crate) blocks: Vec<StartBlock>,
}

/// A block that was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartBlock {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) is_pending: bool,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    size: u64,
    stream: u64,
    pool: Option<PoolKind>,
    is_expandable: bool,
}

#[derive(Debug, Clone, Copy)]
struct Active {
    requested: u64,
    /// Known of what is there at the end.
    size: Option<u64>,
    is_pending: bool,
}

/// A range by its address, with what is in use in it by address.
type RangeWithBlocks = (u64, Range, Vec<(u64, Active)>);

/// What was held before the first entry, by address.
pub(crate) fn start(entries: &[Entry], end: &[Segment], settings: &AllocatorSettings) -> Vec<StartSegment> {
    let mut ranges: BTreeMap<u64, Range> = BTreeMap::new();
    let mut active: BTreeMap<u64, Active> = BTreeMap::new();
    for segment in end {
        let pool = if segment.is_small { PoolKind::Small } else { PoolKind::Large };
        let (size, stream, is_expandable) = (segment.size, segment.stream, segment.is_expandable);
        ranges.insert(segment.address, Range { size, stream, pool: Some(pool), is_expandable });
        for block in segment.blocks.iter().filter(|block| block.is_active) {
            let is_pending = !block.is_allocated;
            active.insert(block.address, Active { requested: block.requested, size: Some(block.size), is_pending });
        }
    }
    for entry in entries.iter().rev() {
        match entry.action {
            Action::Alloc => {
                active.remove(&entry.address);
            }
            Action::FreeCompleted => {
                let gone = Active { requested: entry.size, size: None, is_pending: true };
                active.insert(entry.address, gone);
            }
            Action::FreeRequested => {
                if let Some(block) = active.get_mut(&entry.address) {
                    block.is_pending = false;
                }
            }
            Action::SegmentAlloc => {
                ranges.remove(&entry.address);
            }
            Action::SegmentFree => {
                let pool = if entry.size == SMALL_SEGMENT { PoolKind::Small } else { PoolKind::Large };
                let (size, stream) = (entry.size, entry.stream);
                ranges.insert(entry.address, Range { size, stream, pool: Some(pool), is_expandable: false });
            }
            Action::SegmentMap => cut_out(&mut ranges, entry),
            Action::SegmentUnmap => put_back(&mut ranges, entry),
            Action::Oom | Action::Snapshot => {}
        }
    }
    let mut behind = Behind::default();
    let mut segments: Vec<RangeWithBlocks> = Vec::new();
    let mut last = 0;
    for (address, range) in ranges {
        // Where a history and what was held at its end are of different moments, ranges may overlap; the lower one counts.
        if address < last {
            continue;
        }
        last = address + range.size;
        let inside: Vec<(u64, Active)> = active.range(address..last).map(|(at, block)| (*at, *block)).collect();
        behind.add(&inside, last);
        segments.push((address, range, inside));
    }
    behind.look_through(entries);
    let segment = |(address, range, inside): RangeWithBlocks| {
        let end = address + range.size;
        let pool = range.pool.unwrap_or_else(|| pool_of(&inside));
        let nexts = inside.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let blocks = inside.iter().zip(nexts).map(|((at, block), next)| {
            let size =
                block.size.unwrap_or_else(|| size_of(*at, block.requested, next, pool, range, &behind, settings));
            let size = size.min(next - at);
            StartBlock { address: *at, size, requested: block.requested.min(size), is_pending: block.is_pending }
        });
        let blocks = blocks.collect();
        let Range { size, stream, is_expandable, .. } = range;
        StartSegment { address, size, stream, pool, is_expandable, blocks }
    };
    segments.into_iter().map(segment).collect()
}

/// What is given out first behind blocks whose size is not known, while they are there.
#[derive(Debug, Default)]
struct Behind {
    /// Where the next block begins, by the address of a block.
    open: BTreeMap<u64, u64>,
    found: BTreeMap<u64, u64>,
}

impl Behind {
    fn add(&mut self, blocks: &[(u64, Active)], end: u64) {
        let nexts = blocks.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let unknown = blocks.iter().zip(nexts).filter(|((_, block), _)| block.size.is_none());
        self.open.extend(unknown.map(|((at, _), next)| (*at, next)));
    }

    fn look_through(&mut self, entries: &[Entry]) {
        for entry in entries {
            if self.open.is_empty() {
                return;
            }
            match entry.action {
                Action::FreeCompleted => {
                    self.open.remove(&entry.address);
                }
                Action::Alloc => {
                    let before = self.open.range(..entry.address).next_back().map(|(at, next)| (*at, *next));
                    if let Some((at, _)) = before.filter(|(_, next)| entry.address < *next) {
                        self.open.remove(&at);
                        self.found.insert(at, entry.address);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Takes mapped pages out of the run that has them.
fn cut_out(ranges: &mut BTreeMap<u64, Range>, entry: &Entry) {
    let Some((&address, &range)) = ranges.range(..=entry.address).next_back() else { return };
    let (end, cut_end) = (address + range.size, entry.address + entry.size);
    if end < cut_end {
        return;
    }
    ranges.remove(&address);
    if address < entry.address {
        ranges.insert(address, Range { size: entry.address - address, ..range });
    }
    if cut_end < end {
        ranges.insert(cut_end, Range { size: end - cut_end, ..range });
    }
}

/// Puts unmapped pages back, as one run with those they touch.
fn put_back(ranges: &mut BTreeMap<u64, Range>, entry: &Entry) {
    let (mut address, mut size, mut pool) = (entry.address, entry.size, None);
    let is_before = |(at, range): (&u64, &Range)| {
        (range.is_expandable && range.stream == entry.stream && at + range.size == entry.address)
            .then_some((*at, *range))
    };
    if let Some((at, before)) = ranges.range(..entry.address).next_back().and_then(is_before) {
        ranges.remove(&at);
        (address, size, pool) = (at, size + before.size, before.pool);
    }
    let end = entry.address + entry.size;
    if let Some(after) = ranges.get(&end).copied().filter(|range| range.is_expandable && range.stream == entry.stream) {
        ranges.remove(&end);
        size += after.size;
        pool = pool.or(after.pool);
    }
    ranges.insert(address, Range { size, stream: entry.stream, pool, is_expandable: true });
}

/// The pool of a run, by what was in it.
fn pool_of(blocks: &[(u64, Active)]) -> PoolKind {
    blocks.first().map_or(PoolKind::Large, |(_, block)| PoolKind::of(block.requested))
}

/// How large a block was that is gone at the end.
fn size_of(
    address: u64,
    requested: u64,
    next: u64,
    pool: PoolKind,
    range: Range,
    behind: &Behind,
    settings: &AllocatorSettings,
) -> u64 {
    let rounded = settings.round(requested);
    let gap = next - address;
    if pool == PoolKind::Small || range.is_expandable {
        return rounded.min(gap);
    }
    if settings.is_oversize(rounded) || gap.saturating_sub(rounded) <= SMALL {
        return gap;
    }
    // What is given out behind it while it is there begins where it ends.
    let behind = behind.found.get(&address).map(|at| at - address);
    behind.filter(|size| (rounded..=rounded + SMALL).contains(size)).unwrap_or(rounded)
}
