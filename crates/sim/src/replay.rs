//! A recording through the allocator.

use crate::allocator::{AddressOrder, Allocator};
use crate::block::BlockId;
use crate::host::HostPlayer;
use crate::recording::Input;
use crate::timeline::TimelineNotes;
use crate::{Action, AllocatorSettings, Entry, Recording, Reservation, Source, Statistics, Timeline};

/// Under what a recording is replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// The settings of the allocator.
    pub settings: AllocatorSettings,
    /// The most that may be reserved, where a fraction of the device is set.
    pub limit: Option<u64>,
    /// What the device can give.
    pub capacity: Option<u64>,
    /// Where segments are put.
    pub placement: Placement,
}

/// Where segments are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Where they were: for a replay under the recording's own settings.
    Recorded,
    /// In an order.
    Ordered(AddressOrder),
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// What the allocator counted.
    pub statistics: Statistics,
    /// The first request that was refused, where there is one: the number of its entry in the recording.
    pub first_oom: Option<u32>,
    /// When most was reserved.
    pub reserved_peak: Moment,
    /// When tensors held most.
    pub allocated_peak: Moment,
    /// How many entries differ from the recording's, where they were compared.
    pub differing: Option<usize>,
    /// The first of them.
    pub first_difference: Option<usize>,
}

/// A moment of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// The entry of the recording.
    pub entry: u32,
    /// Bytes reserved.
    pub reserved: u64,
    /// Bytes of blocks that tensors had.
    pub allocated: u64,
    /// The same with those that a stream might still use.
    pub active: u64,
    /// Bytes of free parts of segments that were partly in use, but not of expandable ones.
    pub inactive_split: u64,
}

impl Moment {
    pub(crate) const fn new(entry: u32, statistics: &Statistics) -> Self {
        Self {
            entry,
            reserved: statistics.reserved.current,
            allocated: statistics.allocated.current,
            active: statistics.active.current,
            inactive_split: statistics.inactive_split.current,
        }
    }
}

impl Recording {
    /// Replays it; the peaks and errors that come of it.
    #[must_use]
    pub fn replay(&self, conditions: &Conditions) -> Replay {
        if self.source == Source::Host {
            return HostPlayer::new(self, conditions.limit).play().0;
        }
        Player::new(self, conditions).play().0
    }

    /// Replays it; what was held at every moment of it.
    #[must_use]
    pub fn timeline(&self, conditions: &Conditions) -> Timeline {
        let (replay, notes) = match self.source {
            Source::Host => HostPlayer::new(self, conditions.limit).keep_timeline().play(),
            Source::CachingAllocator => {
                let mut player = Player::new(self, conditions);
                player.keep_timeline();
                player.play()
            }
        };
        notes.unwrap_or_default().finish(replay, self.entries.len() as u32)
    }
}

struct Player<'a> {
    recording: &'a Recording,
    allocator: Allocator,
    /// The blocks of requests, by their numbers, with their requests to be freed; none where one was refused.
    blocks: Vec<Option<(BlockId, u32)>>,
    /// The input up to which the next request was looked for.
    upcoming: usize,
    comparison: Option<Comparison>,
    timeline: Option<TimelineNotes>,
    /// What the allocator did since it was last asked.
    done: Vec<Entry>,
    /// How far of the recording's entries was handed to the device.
    placed: usize,
    first_oom: Option<u32>,
    reserved_peak: Moment,
    allocated_peak: Moment,
}

impl<'a> Player<'a> {
    fn new(recording: &'a Recording, conditions: &Conditions) -> Self {
        let is_compared = conditions.placement == Placement::Recorded;
        let order = match conditions.placement {
            Placement::Recorded => AddressOrder::Ascending,
            Placement::Ordered(order) => order,
        };
        let mut allocator = Allocator::new(conditions.settings.clone(), conditions.limit, conditions.capacity, order);
        let mut blocks = Vec::with_capacity(recording.requests as usize);
        blocks.extend(allocator.restore(&recording.start).into_iter().map(|id| Some((id, allocator.ticket_of(id)))));
        if is_compared {
            allocator.record();
        }
        let start = Moment::new(0, allocator.statistics());
        Self {
            recording,
            allocator,
            blocks,
            upcoming: 0,
            comparison: is_compared.then(Comparison::default),
            timeline: None,
            done: Vec::new(),
            placed: 0,
            first_oom: None,
            reserved_peak: start,
            allocated_peak: start,
        }
    }

    fn keep_timeline(&mut self) {
        let mut notes = TimelineNotes::default();
        for segment in &self.recording.start {
            let (address, size, stream) = (segment.address, segment.size, segment.stream);
            let base = if segment.is_expandable { self.allocator.base_of(address) } else { address };
            notes.reserve(Reservation { address, size, base, stream, begin: 0, end: None });
        }
        for block in self.blocks.iter().flatten() {
            notes.given(self.allocator.life_of(block.0, None));
        }
        self.timeline = Some(notes);
        self.allocator.record();
    }

    fn play(mut self) -> (Replay, Option<TimelineNotes>) {
        let inputs = &self.recording.inputs;
        for (index, (input, entry)) in inputs.iter().enumerate() {
            match *input {
                Input::Alloc { request, stream } => {
                    self.place(*entry);
                    let block = self.allocator.malloc(request, stream);
                    if block.is_none() {
                        self.first_oom.get_or_insert(*entry);
                    }
                    self.blocks.push(block.map(|block| (block, 0)));
                    self.note_peaks(*entry);
                    if let Some(notes) = &mut self.timeline {
                        match block {
                            Some(block) => notes.given(self.allocator.life_of(block, Some(*entry))),
                            None => notes.refused(*entry),
                        }
                    }
                }
                Input::Refused { size, stream } => {
                    self.place(*entry);
                    match self.allocator.malloc(size, stream) {
                        // Whoever got less died of it, or let go of it.
                        Some(block) => {
                            self.allocator.free(block);
                            self.allocator.complete(block);
                        }
                        None => {
                            self.first_oom.get_or_insert(*entry);
                            if let Some(notes) = &mut self.timeline {
                                notes.ooms.push(*entry);
                            }
                        }
                    }
                }
                Input::Free(number) => {
                    if let Some(notes) = &mut self.timeline {
                        notes.freed(number, *entry);
                    }
                    if let Some((block, ticket)) = &mut self.blocks[number as usize] {
                        *ticket = self.allocator.request_free(*block);
                    }
                }
                Input::Complete(number) => {
                    if let Some((block, ticket)) = self.blocks[number as usize].take() {
                        self.allocator.complete_request(block, ticket);
                    }
                }
                Input::EmptyCache => self.allocator.empty_cache(),
                Input::MaybeEmptyCache => {
                    let next = self.next_request(index + 1);
                    if next.is_none_or(|(request, stream)| self.allocator.would_grow(request, stream)) {
                        self.allocator.empty_cache();
                    }
                }
            }
            self.look_at_done(*entry);
        }
        self.conclude()
    }

    /// The size and stream of the first request from an input on.
    fn next_request(&mut self, from: usize) -> Option<(u64, u64)> {
        self.upcoming = self.upcoming.max(from);
        loop {
            match self.recording.inputs.get(self.upcoming)?.0 {
                Input::Alloc { request, stream } => return Some((request, stream)),
                Input::Refused { size, stream } => return Some((size, stream)),
                _ => self.upcoming += 1,
            }
        }
    }

    fn note_peaks(&mut self, entry: u32) {
        let statistics = self.allocator.statistics();
        if statistics.reserved.current > self.reserved_peak.reserved {
            self.reserved_peak = Moment::new(entry, statistics);
        }
        if statistics.allocated.current > self.allocated_peak.allocated {
            self.allocated_peak = Moment::new(entry, statistics);
        }
    }

    /// Hands the device the addresses that it gave for a request when it was recorded.
    fn place(&mut self, entry: u32) {
        if self.comparison.is_none() {
            return;
        }
        let entries = &self.recording.entries[self.placed..entry as usize];
        let is_new = |entry: &&Entry| matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap);
        self.allocator.place_next_at(entries.iter().filter(is_new).map(|entry| entry.address));
        self.placed = entry as usize;
    }

    /// Compares what the allocator did with what was recorded, and notes what it took and gave back.
    fn look_at_done(&mut self, entry: u32) {
        if self.comparison.is_none() && self.timeline.is_none() {
            return;
        }
        self.allocator.swap_entries(&mut self.done);
        if let Some(comparison) = &mut self.comparison {
            comparison.compare(&self.done, &self.recording.entries);
        }
        if let Some(notes) = &mut self.timeline {
            for done in &self.done {
                let is_page = done.action == Action::SegmentMap;
                let base = if is_page { self.allocator.base_of(done.address) } else { done.address };
                notes.note(done, base, entry);
            }
        }
        self.done.clear();
    }

    fn conclude(self) -> (Replay, Option<TimelineNotes>) {
        let compared = self.comparison.map(|comparison| comparison.conclude(&self.recording.entries));
        let replay = Replay {
            statistics: *self.allocator.statistics(),
            first_oom: self.first_oom,
            reserved_peak: self.reserved_peak,
            allocated_peak: self.allocated_peak,
            differing: compared.map(|comparison| comparison.differing),
            first_difference: compared.and_then(|comparison| comparison.first),
        };
        (replay, self.timeline)
    }
}

/// What an allocator did against what was recorded, entry by entry; marks of snapshots are passed over.
#[derive(Debug, Clone, Copy, Default)]
struct Comparison {
    /// The recorded entry that comes next.
    next: usize,
    /// How many were compared.
    compared: usize,
    differing: usize,
    first: Option<usize>,
}

impl Comparison {
    fn compare(&mut self, done: &[Entry], recorded: &[Entry]) {
        for entry in done {
            let other = self.next_of(recorded);
            if !other.is_some_and(|other| is_same(entry, other)) {
                self.differ();
            }
            self.compared += 1;
        }
    }

    fn next_of<'a>(&mut self, recorded: &'a [Entry]) -> Option<&'a Entry> {
        let is_mark = |entry: &&Entry| entry.action == Action::Snapshot;
        self.next += recorded[self.next..].iter().take_while(is_mark).count();
        let entry = recorded.get(self.next)?;
        self.next += 1;
        Some(entry)
    }

    fn differ(&mut self) {
        self.differing += 1;
        self.first.get_or_insert(self.compared);
    }

    /// What was recorded and never done differs too.
    fn conclude(mut self, recorded: &[Entry]) -> Self {
        while self.next_of(recorded).is_some() {
            self.differ();
            self.compared += 1;
        }
        self
    }
}

fn is_same(one: &Entry, other: &Entry) -> bool {
    one.action == other.action
        && (one.action == Action::Oom || one.address == other.address)
        && one.size == other.size
        && one.stream == other.stream
}
