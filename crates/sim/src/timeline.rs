//! A replay over its whole length: which blocks lived when and where, and what was reserved.

use std::collections::BTreeMap;

use crate::{Action, Entry, Replay};

/// The classes of sizes in which live memory is summed up: each holds blocks below its bound, the last one all others.
pub const SIZE_CLASSES: [u64; 5] = [1 << 20, 10 << 20, 100 << 20, 1 << 30, u64::MAX];

/// All blocks of a replay, and what was reserved for them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// What it came to.
    pub replay: Replay,
    /// How many entries the recording has.
    pub entries: u32,
    /// Every block that was handed out, in that order.
    pub blocks: Vec<BlockLife>,
    /// Every range of addresses that was held from the device, in that order.
    pub reservations: Vec<Reservation>,
    /// The entries whose requests were refused.
    pub ooms: Vec<u32>,
}

/// A block from the request that got it until its tensor was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockLife {
    /// Where it was.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// What was asked for.
    pub requested: u64,
    /// Its stream.
    pub stream: u64,
    /// The entry that asked for it; none where it was there before the first.
    pub begin: Option<u32>,
    /// The entry that gave it back; none where it was there to the end.
    pub end: Option<u32>,
}

/// A range of addresses held from the device: a segment, or pages of one that can grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reservation {
    /// Where it was.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// Where the segment began that it was part of.
    pub base: u64,
    /// Its stream.
    pub stream: u64,
    /// The entry whose request asked for it; 0 also where it was there before.
    pub begin: u32,
    /// The entry at which it went back; none where it was held to the end.
    pub end: Option<u32>,
}

/// The most of a stretch of entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// The first entry of the stretch.
    pub entry: u32,
    /// What blocks of each of [`SIZE_CLASSES`] held, at the moment when all together held most.
    pub live: [u64; SIZE_CLASSES.len()],
    /// The most that was reserved.
    pub reserved: u64,
}

impl Level {
    /// What all blocks held together.
    #[must_use]
    pub fn live_in_all(&self) -> u64 {
        self.live.iter().sum()
    }
}

/// The class of a size, as its place in [`SIZE_CLASSES`].
#[must_use]
pub fn size_class(size: u64) -> usize {
    SIZE_CLASSES.iter().position(|bound| size < *bound).unwrap_or(SIZE_CLASSES.len() - 1)
}

impl Timeline {
    /// The timeline in no more than so many stretches of equally many entries.
    #[must_use]
    pub fn levels(&self, most: u32) -> Vec<Level> {
        let count = self.entries.clamp(1, most.max(1));
        let start = |index: u32| (u64::from(index) * u64::from(self.entries)).div_ceil(u64::from(count)) as u32;
        let mut changes = self.changes().into_iter().peekable();
        let mut now = Level::default();
        let level = |index: u32| {
            let mut most = Level { entry: start(index), ..now };
            while let Some(change) = changes.next_if(|change| change.entry < start(index + 1)) {
                change.apply(&mut now);
                if now.live_in_all() > most.live_in_all() {
                    most.live = now.live;
                }
                most.reserved = most.reserved.max(now.reserved);
            }
            most
        };
        (0..count).map(level).collect()
    }

    /// All that changes what is held, in order.
    fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::with_capacity(2 * (self.blocks.len() + self.reservations.len()));
        for block in &self.blocks {
            let what = Held::Live(size_class(block.size));
            changes.push(Change { entry: block.begin.unwrap_or(0), what, size: block.size, is_more: true });
            changes.extend(block.end.map(|entry| Change { entry, what, size: block.size, is_more: false }));
        }
        for range in &self.reservations {
            let (what, size) = (Held::Reserved, range.size);
            changes.push(Change { entry: range.begin, what, size, is_more: true });
            changes.extend(range.end.map(|entry| Change { entry, what, size, is_more: false }));
        }
        // What a request gave back to be served is gone before it gets more.
        changes.sort_by_key(|change| (change.entry, change.is_more));
        changes
    }
}

#[derive(Debug, Clone, Copy)]
enum Held {
    Live(usize),
    Reserved,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    entry: u32,
    what: Held,
    size: u64,
    is_more: bool,
}

impl Change {
    fn apply(&self, level: &mut Level) {
        let held = match self.what {
            Held::Live(class) => &mut level.live[class],
            Held::Reserved => &mut level.reserved,
        };
        *held = if self.is_more { *held + self.size } else { held.saturating_sub(self.size) };
    }
}

/// What is noted while a recording is replayed.
#[derive(Debug, Default)]
pub(crate) struct TimelineNotes {
    pub(crate) blocks: Vec<BlockLife>,
    /// The blocks of requests, by their numbers.
    pub(crate) by_request: Vec<Option<u32>>,
    pub(crate) ooms: Vec<u32>,
    reservations: Vec<Reservation>,
    /// Those that are held, by address.
    held: BTreeMap<u64, u32>,
}

impl TimelineNotes {
    pub(crate) fn given(&mut self, block: BlockLife) {
        self.by_request.push(Some(self.blocks.len() as u32));
        self.blocks.push(block);
    }

    pub(crate) fn refused(&mut self, entry: u32) {
        self.by_request.push(None);
        self.ooms.push(entry);
    }

    pub(crate) fn freed(&mut self, request: u32, entry: u32) {
        if let Some(block) = self.by_request.get(request as usize).copied().flatten() {
            self.blocks[block as usize].end = Some(entry);
        }
    }

    pub(crate) fn reserve(&mut self, range: Reservation) {
        self.held.insert(range.address, self.reservations.len() as u32);
        self.reservations.push(range);
    }

    /// What the allocator did with the device's memory at an entry of the recording.
    pub(crate) fn note(&mut self, done: &Entry, base: u64, entry: u32) {
        match done.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                let Entry { address, size, stream, .. } = *done;
                self.reserve(Reservation { address, size, base, stream, begin: entry, end: None });
            }
            Action::SegmentFree | Action::SegmentUnmap => self.give_back(done.address, done.size, entry),
            _ => {}
        }
    }

    /// Ends the range that begins at an address.
    pub(crate) fn return_at(&mut self, address: u64, entry: u32) {
        if let Some(index) = self.held.remove(&address) {
            self.reservations[index as usize].end = Some(entry);
        }
    }

    /// Ends what lies in a range; what lies in it by a part goes on with the rest.
    fn give_back(&mut self, address: u64, size: u64, entry: u32) {
        let end = address.saturating_add(size);
        let first = self.held.range(..=address).next_back().map_or(address, |(at, _)| *at);
        let inside: Vec<(u64, u32)> = self.held.range(first..end).map(|(at, index)| (*at, *index)).collect();
        for (at, index) in inside {
            let range = self.reservations[index as usize];
            let range_end = at.saturating_add(range.size);
            if range_end <= address {
                continue;
            }
            self.reservations[index as usize].end = Some(entry);
            self.held.remove(&at);
            for (from, to) in [(at, address), (end, range_end)] {
                if from < to {
                    self.reserve(Reservation { address: from, size: to - from, begin: entry, ..range });
                }
            }
        }
    }

    pub(crate) fn finish(self, replay: Replay, entries: u32) -> Timeline {
        let Self { blocks, reservations, ooms, .. } = self;
        Timeline { replay, entries, blocks, reservations, ooms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressOrder, AllocatorSettings, Conditions, Placement, Recording, TorchVersion};

    const MIB: u64 = 1 << 20;

    fn entry(action: Action, address: u64, size: u64) -> Entry {
        Entry { action, address, size, stream: 0 }
    }

    fn timeline(conf: &str, limit: Option<u64>) -> Timeline {
        let entries = vec![
            entry(Action::Alloc, 1, 16 * MIB),
            entry(Action::Alloc, 2, 3 * MIB),
            entry(Action::FreeRequested, 1, 16 * MIB),
            entry(Action::FreeCompleted, 1, 16 * MIB),
            entry(Action::Alloc, 3, 30 * MIB),
        ];
        let settings = AllocatorSettings::parse(conf, TorchVersion::VERIFIED).unwrap();
        let placement = Placement::Ordered(AddressOrder::Ascending);
        Recording::new(entries).unwrap().timeline(&Conditions { settings, limit, capacity: None, placement })
    }

    #[test]
    fn blocks_have_their_lives() {
        let timeline = timeline("", None);
        let lives: Vec<_> = timeline.blocks.iter().map(|block| (block.requested, block.begin, block.end)).collect();
        assert_eq!(lives, [(16 * MIB, Some(0), Some(2)), (3 * MIB, Some(1), None), (30 * MIB, Some(4), None)]);
        let reserved: Vec<_> = timeline.reservations.iter().map(|range| (range.size, range.begin, range.end)).collect();
        assert_eq!(reserved, [(16 * MIB, 0, None), (20 * MIB, 1, None), (30 * MIB, 4, None)]);
        let levels = timeline.levels(100);
        let sums: Vec<_> = levels.iter().map(|level| (level.live_in_all() / MIB, level.reserved / MIB)).collect();
        assert_eq!(sums, [(16, 16), (19, 36), (19, 36), (3, 36), (33, 66)]);
        assert_eq!(levels[4].live, [0, 3 * MIB, 30 * MIB, 0, 0]);
    }

    #[test]
    fn stretches_show_the_most_that_was() {
        let levels = timeline("", None).levels(2);
        let sums = levels.iter().map(|level| (level.entry, level.live_in_all() / MIB, level.reserved / MIB));
        assert_eq!(sums.collect::<Vec<_>>(), [(0, 19, 36), (3, 33, 66)]);
    }

    #[test]
    fn what_goes_back_and_what_is_refused() {
        let timeline = timeline("", Some(50 * MIB));
        let reserved: Vec<_> = timeline.reservations.iter().map(|range| (range.size, range.begin, range.end)).collect();
        assert_eq!(reserved, [(16 * MIB, 0, Some(4)), (20 * MIB, 1, None), (30 * MIB, 4, None)]);
        let timeline = self::timeline("", Some(40 * MIB));
        assert_eq!((timeline.ooms.as_slice(), timeline.blocks.len()), (&[4][..], 2));
    }

    #[test]
    fn pages_that_go_back() {
        let timeline = timeline("expandable_segments:True", Some(50 * MIB));
        let reserved: Vec<_> =
            timeline.reservations.iter().map(|range| (range.size / MIB, range.begin, range.end)).collect();
        let bases: Vec<u64> = timeline.reservations.iter().map(|range| range.base).collect();
        assert!(bases.windows(2).all(|pair| pair[0] == pair[1]), "{timeline:?}");
        assert_eq!(timeline.levels(10).last().unwrap().reserved, timeline.replay.statistics.reserved.current);
        assert!(reserved.len() >= 2, "{reserved:?}");
    }
}
